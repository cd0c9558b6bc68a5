"""T5Gemma's weight names in Hugging Face checkpoints."""

from transept.authoring import WeightMap

_LAYER = r"model\.((?:encoder|decoder)\.layers\.\d+)"

HUGGINGFACE = WeightMap(
    rules=(
        (rf"{_LAYER}\.self_attn\.([qkv])_proj\.(weight|bias)", r"\1.self_attn.qkv_proj.\3#\2"),
        (rf"{_LAYER}\.cross_attn\.([kv])_proj\.(weight|bias)", r"\1.cross_attn.kv_proj.\3#\2"),
        (rf"{_LAYER}\.(self|cross)_attn\.o_proj\.(weight|bias)", r"\1.\2_attn.out_proj.\3"),
        (rf"{_LAYER}\.pre_(self|cross)_attn_layernorm\.weight", r"\1.\2_attn_norm.weight"),
        (rf"{_LAYER}\.post_(self|cross)_attn_layernorm\.weight", r"\1.\2_attn_post_norm.weight"),
        (rf"{_LAYER}\.pre_feedforward_layernorm\.weight", r"\1.ffn_norm.weight"),
        (rf"{_LAYER}\.post_feedforward_layernorm\.weight", r"\1.ffn_post_norm.weight"),
        (rf"{_LAYER}\.mlp\.gate_proj\.weight", r"\1.ffn.fc1.weight"),
        (rf"{_LAYER}\.mlp\.up_proj\.weight", r"\1.ffn.gate.weight"),
        (rf"{_LAYER}\.mlp\.down_proj\.weight", r"\1.ffn.fc2.weight"),
        (r"model\.(.*)", r"\1"),
    ),
    tied=((r"lm_head\.out_proj\.weight", "head.weight"),),
)
