"""LED's weight names in Hugging Face checkpoints."""

from transept.authoring import WeightMap

_LAYER = r"led\.decoder\.layers\.(\d+)"

HUGGINGFACE = WeightMap(
    rules=(
        (r"led\.shared\.weight", "shared.weight"),
        (r"led\.(encoder\..*)", r"\1"),  # transformers' module
        (rf"{_LAYER}\.self_attn\.([qkv])_proj\.(weight|bias)", r"decoder.layers.\1.self_attn.qkv_proj.\3#\2"),
        (rf"{_LAYER}\.self_attn\.out_proj\.(weight|bias)", r"decoder.layers.\1.self_attn.out_proj.\2"),
        (rf"{_LAYER}\.self_attn_layer_norm\.(weight|bias)", r"decoder.layers.\1.self_attn_norm.\2"),
        (rf"{_LAYER}\.encoder_attn\.([qkv])_proj\.(weight|bias)", r"decoder.layers.\1.cross_attn.qkv_proj.\3#\2"),
        (rf"{_LAYER}\.encoder_attn\.out_proj\.(weight|bias)", r"decoder.layers.\1.cross_attn.out_proj.\2"),
        (rf"{_LAYER}\.encoder_attn_layer_norm\.(weight|bias)", r"decoder.layers.\1.cross_attn_norm.\2"),
        (rf"{_LAYER}\.(fc[12])\.(weight|bias)", r"decoder.layers.\1.ffn.\2.\3"),
        (rf"{_LAYER}\.final_layer_norm\.(weight|bias)", r"decoder.layers.\1.ffn_norm.\2"),
        (r"led\.(decoder\.(?:embed_positions|layernorm_embedding)\..*)", r"\1"),
        (r"final_logits_bias", "final_logits_bias"),
    ),
    tied=(
        (r"led\.(?:encoder|decoder)\.embed_tokens\.weight", "shared.weight"),
        (r"lm_head\.weight", "head.weight"),
    ),
    zeros=(r"final_logits_bias",),
)
