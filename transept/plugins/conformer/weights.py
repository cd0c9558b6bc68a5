"""Weight names of Canary and Cohere Transcribe in Hugging Face checkpoints; Cohere's has the names of NeMo."""

from transept.authoring import WeightMap, conformer_layer_rules

_LAYER = r"model\.(decoder\.layers\.\d+)"
_NEMO_LAYER = r"(?:model\.)?transf_decoder\._(decoder\.layers\.\d+)"
_LAYER_RULES = (
    (r"self_attn\.([qkv])_proj", r"self_attn.qkv_proj.\3#\2"),
    (r"encoder_attn\.([qkv])_proj", r"cross_attn.qkv_proj.\3#\2"),
    (r"(self)_attn\.o_proj", r"\2_attn.out_proj.\3"),
    (r"encoder_attn\.(o)_proj", r"cross_attn.out_proj.\3"),
    (r"(input)_layernorm", r"self_attn_norm.\3"),
    (r"(post_attention)_layernorm", r"cross_attn_norm.\3"),
    (r"(final)_layernorm", r"ffn_norm.\3"),
    (r"mlp\.(fc[12])", r"ffn.\2.\3"),
)
_NEMO_NETS = {f"{net}_net": f"qkv_proj.\\2#{net[0]}" for net in ("query", "key", "value")} | {
    "out_projection": r"out_proj.\2"
}
_NEMO_RULES = (
    *((rf"first_sub_layer\.{net}", f"self_attn.{ours}") for net, ours in _NEMO_NETS.items()),
    *((rf"second_sub_layer\.{net}", f"cross_attn.{ours}") for net, ours in _NEMO_NETS.items()),
    (r"third_sub_layer\.dense_in", r"ffn.fc1.\2"),
    (r"third_sub_layer\.dense_out", r"ffn.fc2.\2"),
    *((rf"layer_norm_{n}", rf"{name}_norm.\2") for n, name in enumerate(("self_attn", "cross_attn", "ffn"), 1)),
)
_KIND = r"(weight|bias)"
_IGNORED = (r".*\.num_batches_tracked", r"(?:model\.)?preprocessor\..*")

CANARY = WeightMap(
    rules=(
        *((rf"{_LAYER}\.{theirs}\.{_KIND}", rf"\1.{ours}") for theirs, ours in _LAYER_RULES),
        (rf"model\.decoder\.embedding_layernorm\.{_KIND}", r"decoder.embed_norm.\1"),
        *conformer_layer_rules(r"model\.(encoder\.layers\.\d+)", r"\1"),
        (r"model\.(.*)", r"\1"),
        (r"proj_out\.bias", "head.bias"),
    ),
    tied=((r"proj_out\.weight", "head.weight"),),
    ignored=_IGNORED,
)
COHERE = WeightMap(
    rules=(
        *((rf"{_NEMO_LAYER}\.{theirs}\.{_KIND}", rf"\1.{ours}") for theirs, ours in _NEMO_RULES),
        (rf"(?:model\.)?transf_decoder\._decoder\.final_layer_norm\.{_KIND}", r"decoder.norm.\1"),
        (r"(?:model\.)?transf_decoder\._embedding\.token_embedding\.weight", "decoder.embed_tokens.weight"),
        (r"(?:model\.)?transf_decoder\._embedding\.position_embedding\.pos_enc", "decoder.positions.weight"),
        (rf"(?:model\.)?transf_decoder\._embedding\.layer_norm\.{_KIND}", r"decoder.embed_norm.\1"),
        (rf"(?:model\.)?encoder_decoder_proj\.{_KIND}", r"encoder.proj.\1"),
        *conformer_layer_rules(r"(?:model\.)?(encoder\.layers\.\d+)", r"\1"),
        (rf"(?:model\.)?encoder\.pre_encode\.conv\.(\d+)\.{_KIND}", r"encoder.subsampling.layers.\1.\2"),
        (rf"(?:model\.)?encoder\.pre_encode\.out\.{_KIND}", r"encoder.subsampling.linear.\1"),
        (rf"log_softmax\.mlp\.layer0\.{_KIND}", r"head.\1"),
    ),
    ignored=_IGNORED,
)
