"""Map names of a checkpoint's weights to the model's names. The first regular expression that matches applies."""

from transept.authoring import WeightMap

ENCODER = r"encoder\.(?:encoder\.layer|layers)\.(\d+)"  # saved by transformers 4 and 5, and its modules since 5
DECODER = r"decoder\.model\.decoder"
LAYER = rf"{DECODER}\.(layers\.\d+)"

# "#q" is a part of a stacked weight: attention keeps its three projections in one matrix.
HUGGINGFACE = WeightMap(
    rules=(
        (
            rf"{ENCODER}\.attention\.(?:attention\.)?([qkv])(?:uery|ey|alue|_proj)\.(\w+)",
            r"encoder.layers.\1.self_attn.qkv_proj.\3#\2",
        ),
        (rf"{ENCODER}\.attention\.(?:output\.dense|o_proj)\.(\w+)", r"encoder.layers.\1.self_attn.out_proj.\2"),
        (rf"{ENCODER}\.layernorm_before\.(\w+)", r"encoder.layers.\1.self_attn_norm.\2"),
        (rf"{ENCODER}\.layernorm_after\.(\w+)", r"encoder.layers.\1.ffn_norm.\2"),
        (rf"{ENCODER}\.(?:intermediate\.dense|mlp\.fc1)\.(\w+)", r"encoder.layers.\1.ffn.fc1.\2"),
        (rf"{ENCODER}\.(?:output\.dense|mlp\.fc2)\.(\w+)", r"encoder.layers.\1.ffn.fc2.\2"),
        (r"encoder\.embeddings\.patch_embeddings\.projection\.(\w+)", r"encoder.patches.\1"),
        (r"encoder\.embeddings\.(.*)", r"encoder.\1"),
        (r"encoder\.layernorm\.(\w+)", r"encoder.norm.\1"),
        (rf"{LAYER}\.self_attn\.([qkv])_proj\.(\w+)", r"decoder.\1.self_attn.qkv_proj.\3#\2"),
        (rf"{LAYER}\.encoder_attn\.([qkv])_proj\.(\w+)", r"decoder.\1.cross_attn.qkv_proj.\3#\2"),
        (rf"{LAYER}\.encoder_attn\.out_proj\.(\w+)", r"decoder.\1.cross_attn.out_proj.\2"),
        (rf"{LAYER}\.self_attn_layer_norm\.(\w+)", r"decoder.\1.self_attn_norm.\2"),
        (rf"{LAYER}\.encoder_attn_layer_norm\.(\w+)", r"decoder.\1.cross_attn_norm.\2"),
        (rf"{LAYER}\.final_layer_norm\.(\w+)", r"decoder.\1.ffn_norm.\2"),
        (rf"{LAYER}\.(fc[12])\.(\w+)", r"decoder.\1.ffn.\2.\3"),
        (rf"{DECODER}\.(.*)", r"decoder.\1"),
        (r"(enc_to_dec_proj\..*)", r"\1"),
    ),
    tied=((r"decoder\.lm_head\.weight", "lm_head.weight"),),  # other name of a weight; a copy must equal it
    ignored=(r"encoder\.pooler\..*",),
)
