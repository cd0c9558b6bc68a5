"""The weight names of both families in Hugging Face checkpoints."""

from transept.authoring import WeightMap

_ATTENTION = r"model\.(.*\.(?:self|encoder)_attn)"

HUGGINGFACE = WeightMap(
    rules=(
        (rf"{_ATTENTION}\.([qkv])_proj\.(weight|bias)", r"\1.qkv_proj.\3#\2"),
        (rf"{_ATTENTION}\.o_proj\.weight", r"\1.out_proj.weight"),
        (r"model\.decoder\.(pos_emb|proj)\.weight", r"encoder.\1.weight"),  # for the encoder's output
        (r"model\.(.*)", r"\1"),
    ),
    tied=((r"proj_out\.weight", "head.weight"),),
)
