"""bart_layer_rules: rules of weight maps for layers with the names that most of transformers' families use."""

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
