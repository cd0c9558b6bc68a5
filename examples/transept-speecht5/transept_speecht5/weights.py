"""SpeechT5's weight names in Hugging Face checkpoints."""

from transept.authoring import WeightMap

_PRENET = r"speecht5\.encoder\.prenet"
_ENCODER = r"speecht5\.encoder\.wrapped_encoder"
_LAYER = r"speecht5\.(en|de)coder\.wrapped_(?:en|de)coder\.(layers\.\d+)"

HUGGINGFACE = WeightMap(
    rules=(
        (rf"{_LAYER}\.(?:attention|self_attn)\.([qkv])_proj\.(weight|bias)", r"\1coder.\2.self_attn.qkv_proj.\4#\3"),
        (rf"{_LAYER}\.encoder_attn\.([qkv])_proj\.(weight|bias)", r"\1coder.\2.cross_attn.qkv_proj.\4#\3"),
        (rf"{_LAYER}\.(?:attention|self_attn)\.out_proj\.(.*)", r"\1coder.\2.self_attn.out_proj.\3"),
        (rf"{_LAYER}\.encoder_attn\.out_proj\.(.*)", r"\1coder.\2.cross_attn.out_proj.\3"),
        (rf"{_LAYER}\.feed_forward\.intermediate_dense\.(.*)", r"\1coder.\2.ffn.fc1.\3"),
        (rf"{_LAYER}\.feed_forward\.output_dense\.(.*)", r"\1coder.\2.ffn.fc2.\3"),
        (rf"{_LAYER}\.(?:self_attn_)?layer_norm\.(.*)", r"\1coder.\2.self_attn_norm.\3"),
        (rf"{_LAYER}\.encoder_attn_layer_norm\.(.*)", r"\1coder.\2.cross_attn_norm.\3"),
        (rf"{_LAYER}\.final_layer_norm\.(.*)", r"\1coder.\2.ffn_norm.\3"),
        (rf"{_ENCODER}\.embed_positions\.pe_k\.weight", "encoder.distances"),
        (rf"{_ENCODER}\.(layer_norm\..*)", r"encoder.\1"),
        # The parts of a normed weight have had other names.
        (rf"{_PRENET}\.pos_conv_embed\.conv\.weight_g", "encoder.near.parametrizations.weight.original0"),
        (rf"{_PRENET}\.pos_conv_embed\.conv\.weight_v", "encoder.near.parametrizations.weight.original1"),
        (rf"{_PRENET}\.pos_conv_embed\.conv\.(.*)", r"encoder.near.\1"),
        (rf"{_PRENET}\.feature_encoder\.conv_layers\.(.*)", r"encoder.convolutions.\1"),
        (rf"{_PRENET}\.feature_projection\.layer_norm\.(.*)", r"encoder.projection.0.\1"),
        (rf"{_PRENET}\.feature_projection\.projection\.(.*)", r"encoder.projection.1.\1"),
        (r"speecht5\.decoder\.prenet\.embed_tokens\.weight", "decoder.embed_tokens.weight"),
    ),
    tied=((r"text_decoder_postnet\.lm_head\.weight", "head.weight"),),
    # Used only in training, and computed positions.
    ignored=(rf"{_PRENET}\.masked_spec_embed", r".*\.(?:pos_sinusoidal_embed|embed_positions)\.weights"),
)
