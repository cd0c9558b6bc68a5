"""Marian's weight names in Hugging Face checkpoints."""

from transept.authoring import WeightMap, bart_layer_rules

_SIDE = r"model\.(encoder|decoder)"

HUGGINGFACE = WeightMap(
    rules=(
        (r"model\.shared\.weight", "encoder.embed_tokens.weight"),
        *bart_layer_rules(rf"{_SIDE}\.(layers\.\d+)", r"\1.\2"),
        (r"final_logits_bias", "final_logits_bias"),
    ),
    tied=(  # a side's own matrix where the two are not shared, else the shared one once more
        (rf"{_SIDE}\.embed_tokens\.weight", r"\1.embed_tokens.weight"),
        (r"lm_head\.weight", "head.weight"),
    ),
    ignored=(rf"{_SIDE}\.embed_positions\.weight",),  # computed
    zeros=(r"final_logits_bias",),
)
