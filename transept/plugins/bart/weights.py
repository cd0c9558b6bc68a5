"""The weight names of BART and related families in Hugging Face checkpoints, also of the bare model."""

import dataclasses

from transept.authoring import WeightMap, bart_layer_rules
from transept.plugins.bart.plain import PLAIN

_SIDE = r"(?:model\.)?(encoder|decoder)"

HUGGINGFACE = WeightMap(
    rules=(
        (r"(?:model\.)?shared\.weight", "shared.weight"),
        (rf"{_SIDE}\.embed_positions\.weight", r"\1.embedding.embed_positions"),
        (rf"{_SIDE}\.layernorm_embedding\.(weight|bias)", r"\1.embedding.layernorm_embedding.\2"),
        (rf"{_SIDE}\.layer_norm\.(weight|bias)", r"\1.layer_norm.\2"),
        *bart_layer_rules(rf"{_SIDE}\.(layers\.\d+)", r"\1.\2"),
        (r"final_logits_bias", "final_logits_bias"),
    ),
    tied=(
        (rf"{_SIDE}\.embed_tokens\.weight", "shared.weight"),
        (r"lm_head\.weight", "head.weight"),
    ),
    zeros=(r"final_logits_bias",),
)

BART = dataclasses.replace(HUGGINGFACE, plain=PLAIN)

# Some checkpoints have sinusoidal positions, which the model computes.
SINUSOIDAL = dataclasses.replace(HUGGINGFACE, ignored=(rf"{_SIDE}\.embed_positions\.weights?",))
