"""bart_layer_rules, conformer_layer_rules: rules of weight maps for layers with the names that many families use."""

from __future__ import annotations

_LAYER = (  # of BART's layers in transformers -> of EncoderLayer and DecoderLayer
    (r"self_attn\.(?P<part>[qkv])_proj", r"self_attn.qkv_proj.\g<kind>#\g<part>"),
    (r"self_attn\.out_proj", r"self_attn.out_proj.\g<kind>"),
    (r"self_attn_layer_norm", r"self_attn_norm.\g<kind>"),
    (r"encoder_attn\.(?P<part>[qkv])_proj", r"cross_attn.qkv_proj.\g<kind>#\g<part>"),
    (r"encoder_attn\.out_proj", r"cross_attn.out_proj.\g<kind>"),
    (r"encoder_attn_layer_norm", r"cross_attn_norm.\g<kind>"),
    (r"(?P<linear>fc[12])", r"ffn.\g<linear>.\g<kind>"),
    (r"final_layer_norm", r"ffn_norm.\g<kind>"),
)


def bart_layer_rules(names: str, target: str) -> tuple[tuple[str, str], ...]:
    r"""Return rules of a WeightMap for layers whose weights are named as in transformers' BART.

    names: regular expression of the prefix of ``.self_attn.q_proj.weight``, such as ``model\.(decoder\.layers\.\d+)``.
    target: the layer's name in the model, an EncoderLayer or a DecoderLayer; ``\1`` is the first group of `names`.

    Put rules for a family's differences before these, such as one for a ``cross_attn.kv_proj``.
    """
    return tuple((rf"{names}\.{theirs}\.(?P<kind>weight|bias)", f"{target}.{ours}") for theirs, ours in _LAYER)


_CONFORMER_LAYER = (  # of Parakeet's encoder in transformers, and its names in NeMo -> of ConformerLayer
    (r"self_attn\.(?P<part>[qkv])_proj", r"self_attn.qkv_proj.\g<kind>#\g<part>"),
    (r"self_attn\.linear_(?P<part>[qkv])", r"self_attn.qkv_proj.\g<kind>#\g<part>"),
    (r"self_attn\.(?:o_proj|linear_out)", r"self_attn.out_proj.\g<kind>"),
    (r"self_attn\.(?:relative_k_proj|linear_pos)", r"self_attn.position_proj.\g<kind>"),
    (r"conv\.pointwise_conv1", r"conv.in_proj.\g<kind>"),
    (r"conv\.depthwise_conv", r"conv.conv.\g<kind>"),
    (r"conv\.(?:batch_)?norm", r"conv.norm.\g<kind>"),
    (r"conv\.pointwise_conv2", r"conv.out_proj.\g<kind>"),
    (r"feed_forward(?P<half>[12])\.linear(?P<linear>[12])", r"ffn\g<half>.fc\g<linear>.\g<kind>"),
    (r"norm_feed_forward(?P<half>[12])", r"ffn\g<half>_norm.\g<kind>"),
    (r"norm_self_att", r"self_attn_norm.\g<kind>"),
    (r"norm_conv", r"conv_norm.\g<kind>"),
    (r"norm_out", r"out_norm.\g<kind>"),
)


def conformer_layer_rules(names: str, target: str) -> tuple[tuple[str, str], ...]:
    r"""Return rules of a WeightMap for a ConformerLayer, whose weights are named as in transformers' Parakeet or NeMo.

    names: regular expression of the prefix of ``.self_attn.q_proj.weight``, such as ``model\.(encoder\.layers\.\d+)``.
    target: the layer's name in the model; ``\1`` is the first group of `names`.

    BatchNorm1d's ``num_batches_tracked`` is not a weight: add ``r".*\.num_batches_tracked"`` to `ignored`.
    """
    kind = r"(?P<kind>weight|bias|running_mean|running_var)"
    return (
        *((rf"{names}\.{theirs}\.{kind}", f"{target}.{ours}") for theirs, ours in _CONFORMER_LAYER),
        (rf"{names}\.self_attn\.(?:bias_u|pos_bias_u)", f"{target}.self_attn.content_bias"),
        (rf"{names}\.self_attn\.(?:bias_v|pos_bias_v)", f"{target}.self_attn.position_bias"),
    )
