"""SeamlessM4T's weight names in Hugging Face checkpoints, of speech to text alone and of the whole model."""

from transept.authoring import WeightMap

_LAYER = r"text_decoder\.(layers\.\d+)"

HUGGINGFACE = WeightMap(
    rules=(
        (rf"{_LAYER}\.self_attn\.([qkv])_proj\.(weight|bias)", r"decoder.\1.self_attn.qkv_proj.\3#\2"),
        (rf"{_LAYER}\.cross_attention\.([qkv])_proj\.(weight|bias)", r"decoder.\1.cross_attn.qkv_proj.\3#\2"),
        (rf"{_LAYER}\.cross_attention\.out_proj\.(.*)", r"decoder.\1.cross_attn.out_proj.\2"),
        (rf"{_LAYER}\.self_attn_layer_norm\.(.*)", r"decoder.\1.self_attn_norm.\2"),
        (rf"{_LAYER}\.cross_attention_layer_norm\.(.*)", r"decoder.\1.cross_attn_norm.\2"),
        (rf"{_LAYER}\.ffn_layer_norm\.(.*)", r"decoder.\1.ffn_norm.\2"),
        (r"text_decoder\.(.*)", r"decoder.\1"),
        (r"speech_encoder\.(.*)", r"encoder.\1"),
    ),
    tied=(
        (r"(?:shared|text_decoder\.embed_tokens)\.weight", "decoder.embed_tokens.weight"),
        (r"lm_head\.weight", "head.weight"),
    ),
    # The text encoder, the parts that generate speech, and computed positions.
    ignored=(r"(?:text_encoder|t2u_model|vocoder)\..*", r".*\.embed_positions\.weights"),
)
