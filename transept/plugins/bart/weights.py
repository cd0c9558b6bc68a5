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

# The encoder keeps transformers' names. BigBird-Pegasus calls the last norm an embedding's.
_MODEL = r"(?:model\.)?"
LONG = dataclasses.replace(
    HUGGINGFACE,
    rules=(
        (rf"{_MODEL}shared\.weight", "shared.weight"),
        (rf"{_MODEL}decoder\.embed_positions\.weight", "decoder.embedding.embed_positions"),
        (rf"{_MODEL}decoder\.(?:layernorm_embedding|layer_norm)\.(weight|bias)", r"decoder.layer_norm.\1"),
        *bart_layer_rules(rf"{_MODEL}(decoder\.layers\.\d+)", r"\1"),
        (rf"{_MODEL}(encoder\..*)", r"\1"),
        (r"final_logits_bias", "final_logits_bias"),
    ),
)

# Some checkpoints have sinusoidal positions, which the model computes.
SINUSOIDAL = dataclasses.replace(HUGGINGFACE, ignored=(rf"{_SIDE}\.embed_positions\.weights?",))
