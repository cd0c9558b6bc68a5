"""The weight names of BART and its kin in Hugging Face checkpoints, of the bare model too."""

import dataclasses

from transept.authoring import WeightMap

_SIDE = r"(?:model\.)?(encoder|decoder)"
_LAYER = rf"{_SIDE}\.layers\.(\d+)"

HUGGINGFACE = WeightMap(
    rules=(
        (r"(?:model\.)?shared\.weight", "shared.weight"),
        (rf"{_SIDE}\.embed_positions\.weight", r"\1.embedding.embed_positions"),
        (rf"{_SIDE}\.layernorm_embedding\.(weight|bias)", r"\1.embedding.layernorm_embedding.\2"),
        (rf"{_SIDE}\.layer_norm\.(weight|bias)", r"\1.layer_norm.\2"),
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
    tied=(
        (rf"{_SIDE}\.embed_tokens\.weight", "shared.weight"),
        (r"lm_head\.weight", "head.weight"),
    ),
    zeros=(r"final_logits_bias",),
)

# Some checkpoints hold sinusoidal positions, as they are computed here.
SINUSOIDAL = dataclasses.replace(HUGGINGFACE, ignored=(rf"{_SIDE}\.embed_positions\.weights?",))
