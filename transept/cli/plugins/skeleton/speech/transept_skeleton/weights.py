"""Map names of a checkpoint's weights to the model's names. The first regular expression that matches applies."""

from transept.authoring import WeightMap

# "#q" is a part of a stacked weight: attention keeps its three projections in one matrix.
HUGGINGFACE = WeightMap(
    rules=(
        (r"model\.(.*\.self_attn)\.([qkv])_proj\.(weight|bias)", r"\1.qkv_proj.\3#\2"),
        (r"model\.(.*)\.encoder_attn\.([qkv])_proj\.(weight|bias)", r"\1.cross_attn.qkv_proj.\3#\2"),
        (r"model\.(.*)\.encoder_attn\.out_proj\.(weight|bias)", r"\1.cross_attn.out_proj.\2"),
        (r"model\.(.*)\.self_attn_layer_norm\.(weight|bias)", r"\1.self_attn_norm.\2"),
        (r"model\.(.*)\.encoder_attn_layer_norm\.(weight|bias)", r"\1.cross_attn_norm.\2"),
        (r"model\.(.*)\.final_layer_norm\.(weight|bias)", r"\1.ffn_norm.\2"),
        (r"model\.(.*)\.(fc[12])\.(weight|bias)", r"\1.ffn.\2.\3"),
        (r"model\.encoder\.conv\.(.*)", r"encoder.\1"),
        (r"model\.(.*)", r"\1"),  # all else is named as in model.py
    ),
    tied=((r"lm_head\.weight", "lm_head.weight"),),  # other name of a weight; a copy must equal it
    ignored=(r"model\.(?:en|de)coder\.embed_positions\.weights",),  # computed
)
