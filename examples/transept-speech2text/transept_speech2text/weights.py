"""Speech2Text's weight names in Hugging Face checkpoints."""

from transept.authoring import WeightMap, bart_layer_rules

HUGGINGFACE = WeightMap(
    rules=(
        *bart_layer_rules(r"model\.((?:en|de)coder\.layers\.\d+)", r"\1"),
        (r"model\.encoder\.conv\.(.*)", r"encoder.\1"),
        (r"model\.(.*)", r"\1"),
    ),
    tied=((r"lm_head\.weight", "head.weight"),),
    ignored=(r"model\.(?:en|de)coder\.embed_positions\.weights",),  # computed
)
