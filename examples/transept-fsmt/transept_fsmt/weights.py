"""FSMT's weight names in Hugging Face checkpoints."""

from transept.authoring import WeightMap, bart_layer_rules

_SIDE = r"model\.(encoder|decoder)"

HUGGINGFACE = WeightMap(
    rules=bart_layer_rules(rf"{_SIDE}\.(layers\.\d+)", r"\1.\2"),
    tied=(  # matrices of both sides and the head; some checkpoints have one for all
        (rf"{_SIDE}\.embed_tokens\.weight", r"\1.embed_tokens.weight"),
        (r"model\.decoder\.output_projection\.weight", "head.weight"),
    ),
    ignored=(rf"{_SIDE}\.embed_positions\.weight",),  # computed
)
