"""LED's weight names in Hugging Face checkpoints."""

from transept.authoring import WeightMap, bart_layer_rules

HUGGINGFACE = WeightMap(
    rules=(
        (r"led\.shared\.weight", "shared.weight"),
        (r"led\.(encoder\..*)", r"\1"),  # transformers' module
        *bart_layer_rules(r"led\.(decoder\.layers\.\d+)", r"\1"),
        (r"led\.(decoder\.(?:embed_positions|layernorm_embedding)\..*)", r"\1"),
        (r"final_logits_bias", "final_logits_bias"),
    ),
    tied=(
        (r"led\.(?:encoder|decoder)\.embed_tokens\.weight", "shared.weight"),
        (r"lm_head\.weight", "head.weight"),
    ),
    zeros=(r"final_logits_bias",),
)
