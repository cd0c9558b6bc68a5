"""FSMT's weight names in Hugging Face checkpoints."""

from transept.authoring import WeightMap

_SIDE = r"model\.(encoder|decoder)"
_LAYER = rf"{_SIDE}\.layers\.(\d+)"

HUGGINGFACE = WeightMap(
    rules=(
        (rf"{_LAYER}\.self_attn\.([qkv])_proj\.(weight|bias)", r"\1.layers.\2.self_attn.qkv_proj.\4#\3"),
        (rf"{_LAYER}\.self_attn\.out_proj\.(weight|bias)", r"\1.layers.\2.self_attn.out_proj.\3"),
        (rf"{_LAYER}\.self_attn_layer_norm\.(weight|bias)", r"\1.layers.\2.self_attn_norm.\3"),
        (rf"{_LAYER}\.encoder_attn\.([qkv])_proj\.(weight|bias)", r"\1.layers.\2.cross_attn.qkv_proj.\4#\3"),
        (rf"{_LAYER}\.encoder_attn\.out_proj\.(weight|bias)", r"\1.layers.\2.cross_attn.out_proj.\3"),
        (rf"{_LAYER}\.encoder_attn_layer_norm\.(weight|bias)", r"\1.layers.\2.cross_attn_norm.\3"),
        (rf"{_LAYER}\.(fc[12])\.(weight|bias)", r"\1.layers.\2.ffn.\3.\4"),
        (rf"{_LAYER}\.final_layer_norm\.(weight|bias)", r"\1.layers.\2.ffn_norm.\3"),
    ),
    tied=(  # the matrices of both sides and of the head, of which some checkpoints have one for all
        (rf"{_SIDE}\.embed_tokens\.weight", r"\1.embed_tokens.weight"),
        (r"model\.decoder\.output_projection\.weight", "head.weight"),
    ),
    ignored=(rf"{_SIDE}\.embed_positions\.weight",),  # computed
)
