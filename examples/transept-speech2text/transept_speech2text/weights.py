"""Speech2Text's weight names in Hugging Face checkpoints."""

from transept.authoring import WeightMap

_LAYER = r"model\.((?:en|de)coder\.layers\.\d+)"

HUGGINGFACE = WeightMap(
    rules=(
        (rf"{_LAYER}\.self_attn\.([qkv])_proj\.(weight|bias)", r"\1.self_attn.qkv_proj.\3#\2"),
        (rf"{_LAYER}\.encoder_attn\.([qkv])_proj\.(weight|bias)", r"\1.cross_attn.qkv_proj.\3#\2"),
        (rf"{_LAYER}\.encoder_attn\.out_proj\.(weight|bias)", r"\1.cross_attn.out_proj.\2"),
        (rf"{_LAYER}\.self_attn_layer_norm\.(weight|bias)", r"\1.self_attn_norm.\2"),
        (rf"{_LAYER}\.encoder_attn_layer_norm\.(weight|bias)", r"\1.cross_attn_norm.\2"),
        (rf"{_LAYER}\.final_layer_norm\.(weight|bias)", r"\1.ffn_norm.\2"),
        (rf"{_LAYER}\.(fc[12])\.(weight|bias)", r"\1.ffn.\2.\3"),
        (r"model\.encoder\.conv\.(.*)", r"encoder.\1"),
        (r"model\.(.*)", r"\1"),
    ),
    tied=((r"lm_head\.weight", "head.weight"),),
    ignored=(r"model\.(?:en|de)coder\.embed_positions\.weights",),  # computed
)
