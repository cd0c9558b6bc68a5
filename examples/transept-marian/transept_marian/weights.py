"""Marian's weight names in Hugging Face checkpoints."""

from transept.authoring import WeightMap

_SIDE = r"model\.(encoder|decoder)"
_LAYER = rf"{_SIDE}\.layers\.(\d+)"

HUGGINGFACE = WeightMap(
    rules=(
        (r"model\.shared\.weight", "encoder.embed_tokens.weight"),
        (rf"{_LAYER}\.self_attn\.([qkv])_proj\.(weight|bias)", r"\1.layers.\2.self_attn.qkv_proj.\4#\3"),
        (rf"{_LAYER}\.self_attn\.out_proj\.(weight|bias)", r"\1.layers.\2.self_attn.out_proj.\3"),
        (rf"{_LAYER}\.self_attn_layer_norm\.(weight|bias)", r"\1.layers.\2.self_attn_norm.\3"),
        (rf"{_LAYER}\.encoder_attn\.([qkv])_proj\.(weight|bias)", r"\1.layers.\2.cross_attn.qkv_proj.\4#\3"),
        (rf"{_LAYER}\.encoder_attn\.out_proj\.(weight|bias)", r"\1.layers.\2.cross_attn.out_proj.\3"),
        (rf"{_LAYER}\.encoder_attn_layer_norm\.(weight|bias)", r"\1.layers.\2.cross_attn_norm.\3"),
        (rf"{_LAYER}\.(fc[12])\.(weight|bias)", r"\1.layers.\2.ffn.\3.\4"),
        (rf"{_LAYER}\.final_layer_norm\.(weight|bias)", r"\1.layers.\2.ffn_norm.\3"),
        (r"final_logits_bias", "final_logits_bias"),
    ),
    tied=(  # a side's own matrix where the two are not shared, else the shared one once more
        (rf"{_SIDE}\.embed_tokens\.weight", r"\1.embed_tokens.weight"),
        (r"lm_head\.weight", "head.weight"),
    ),
    ignored=(rf"{_SIDE}\.embed_positions\.weight",),  # computed
    zeros=(r"final_logits_bias",),
)
