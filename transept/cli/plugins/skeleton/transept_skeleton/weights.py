"""From the names of a checkpoint's weights to the model's: regular expressions, the first that matches wins."""

from transept.authoring import WeightMap

# The modules in model.py are named as in the checkpoint, so that little is left to map. "#q" is a part of a stacked
# weight: QKVParallelLinear keeps the three projections in one matrix.
HUGGINGFACE = WeightMap(
    rules=(
        (r"(?:model\.)?(.*)\.([qkv])_proj\.(weight|bias)", r"\1.qkv_proj.\3#\2"),
        (r"(?:model\.)?(.*)", r"\1"),
    ),
    tied=(  # further names of a weight; such a copy must equal it
        (r"(?:model\.)?(?:encoder|decoder)\.embed_tokens\.weight", "shared.weight"),
        (r"lm_head\.weight", "lm_head.weight"),
    ),
)
