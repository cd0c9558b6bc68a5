"""Weight names of image families; for TrOCR and Donut, as transformers 4 and 5 save them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import torch

from transept.authoring import Checkpoint, WeightMap, bart_layer_rules, huggingface_config
from transept.plugins.bart.weights import HUGGINGFACE as BART

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_ENCODER = r"encoder\.(?:encoder\.layer|layers)\.(\d+)"
_DECODER = r"decoder\.model\.decoder"
_LAYER = r"decoder\.model\.(decoder\.layers\.\d+)"
_QKV = r"(?:attention\.)?([qkv])(?:uery|ey|alue|_proj)"

_EMBEDDING, _HEAD = rf"{_DECODER}\.embed_tokens\.weight", r"decoder\.(output_projection|lm_head)\.weight"


def nested_config(checkpoint: Checkpoint) -> PretrainedConfig:
    """Return config.json, with the decoder's head tied only if its matrix equals the embedding's.

    transformers 5 also does this; a config of transformers 4 may lack the setting.
    """
    config = huggingface_config(checkpoint)
    if config.decoder.tie_word_embeddings:
        found = [tensor for name, tensor in checkpoint.tensors() if re.fullmatch(f"{_EMBEDDING}|{_HEAD}", name)]
        config.decoder.tie_word_embeddings = len(found) < 2 or torch.equal(*found)
    return config


def within(prefix: str, rules: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return BART's rules for a BART inside another model. prefix: of its names, a regular expression."""
    return tuple((name.replace(r"(?:model\.)?", prefix), target) for name, target in rules)


TROCR = WeightMap(
    rules=(
        (rf"{_ENCODER}\.attention\.{_QKV}\.(\w+)", r"encoder.layers.\1.self_attn.qkv_proj.\3#\2"),
        (rf"{_ENCODER}\.attention\.(?:output\.dense|o_proj)\.(\w+)", r"encoder.layers.\1.self_attn.out_proj.\2"),
        (rf"{_ENCODER}\.layernorm_before\.(\w+)", r"encoder.layers.\1.self_attn_norm.\2"),
        (rf"{_ENCODER}\.layernorm_after\.(\w+)", r"encoder.layers.\1.ffn_norm.\2"),
        (rf"{_ENCODER}\.(?:intermediate\.dense|mlp\.fc1)\.(\w+)", r"encoder.layers.\1.ffn.fc1.\2"),
        (rf"{_ENCODER}\.(?:output\.dense|mlp\.fc2)\.(\w+)", r"encoder.layers.\1.ffn.fc2.\2"),
        (r"encoder\.embeddings\.(cls_token|distillation_token|position_embeddings)", r"encoder.\1"),
        (r"encoder\.embeddings\.patch_embeddings\.projection\.(\w+)", r"encoder.patches.\1"),
        (r"encoder\.layernorm\.(\w+)", r"encoder.norm.\1"),
        (rf"{_LAYER}\.encoder_attn\.q_proj\.(\w+)", r"\1.cross_attn.q_proj.\2"),
        (rf"{_LAYER}\.encoder_attn\.([kv])_proj\.(\w+)", r"\1.cross_attn.kv_proj.\3#\2"),
        *bart_layer_rules(_LAYER, r"\1"),
        (rf"{_DECODER}\.embed_positions\.weight", "decoder.embed_positions"),
        (rf"{_DECODER}\.((?:embed_tokens|layernorm_embedding)\..*)", r"decoder.\1"),
        (r"enc_to_dec_proj\.(.*)", r"encoder.projection.\1"),
    ),
    tied=((_HEAD, "head.weight"),),
    # _float_tensor: of sinusoids, which are computed
    ignored=(r"encoder\.(pooler\..*|embeddings\.mask_token)", rf"{_DECODER}\.embed_positions\._float_tensor"),
    config=nested_config,
)

DONUT = WeightMap(
    rules=(
        (_EMBEDDING, "decoder.embedding.embed_tokens.weight"),
        *within(r"decoder\.model\.", BART.rules),
        (r"((?:encoder|enc_to_dec_proj)\..*)", r"\1"),
    ),
    tied=((_HEAD, "head.weight"),),
    config=nested_config,
)

_LANGUAGE_MODEL, _PROJECTOR = r"model\.language_model\.", r"model\.multi_modal_projector"

FLORENCE2 = WeightMap(
    rules=(
        *within(_LANGUAGE_MODEL, BART.rules),
        (rf"{_PROJECTOR}\.image_position_embed\.(row|column)_embeddings\.weight", r"projection.\1_embeddings"),
        (rf"{_PROJECTOR}\.(image_proj\w+\.\w+)", r"projection.\1"),
        (r"model\.(vision_tower\..*)", r"\1"),
    ),
    tied=within(_LANGUAGE_MODEL, BART.tied),
    ignored=(rf"{_PROJECTOR}\.visual_temporal_embed\.pos_idx_to_embed",),  # sinusoids
)

_PATCHES, _STACK = r"encoder\.encoder\.layer\.(\d+)", r"decoder\.layer\.(\d+)"
_SELF, _CROSS = rf"{_STACK}\.self_attention", rf"{_STACK}\.encoder_decoder_attention"

PIX2STRUCT = WeightMap(
    rules=(
        (r"encoder\.embeddings\.(\w+)\.(\w+)", r"encoder.\1.\2"),
        (rf"{_PATCHES}\.attention\.([qkv])\w+\.weight", r"encoder.layers.\1.self_attn.qkv_proj.weight#\2"),
        (rf"{_PATCHES}\.attention\.output\.weight", r"encoder.layers.\1.self_attn.out_proj.weight"),
        (rf"{_PATCHES}\.pre_attention_layer_norm\.weight", r"encoder.layers.\1.self_attn_norm.weight"),
        (rf"{_PATCHES}\.mlp\.wi_0\.weight", r"encoder.layers.\1.ffn.fc1.weight"),
        (rf"{_PATCHES}\.mlp\.wi_1\.weight", r"encoder.layers.\1.ffn.gate.weight"),
        (rf"{_PATCHES}\.mlp\.wo\.weight", r"encoder.layers.\1.ffn.fc2.weight"),
        (rf"{_PATCHES}\.pre_mlp_layer_norm\.weight", r"encoder.layers.\1.ffn_norm.weight"),
        (r"encoder\.layernorm\.weight", "encoder.norm.weight"),
        (r"decoder\.embed_tokens\.weight", "shared.weight"),
        (rf"{_SELF}\.attention\.relative_attention_bias\.weight", r"decoder.relative_attention_biases.\1"),
        (rf"{_SELF}\.attention\.([qkv])\w+\.weight", r"decoder.layers.\1.self_attn.qkv_proj.weight#\2"),
        (rf"{_SELF}\.attention\.output\.weight", r"decoder.layers.\1.self_attn.out_proj.weight"),
        (rf"{_SELF}\.layer_norm\.weight", r"decoder.layers.\1.self_attn_norm.weight"),
        (rf"{_CROSS}\.attention\.([qkv])\w+\.weight", r"decoder.layers.\1.cross_attn.qkv_proj.weight#\2"),
        (rf"{_CROSS}\.attention\.output\.weight", r"decoder.layers.\1.cross_attn.out_proj.weight"),
        (rf"{_CROSS}\.layer_norm\.weight", r"decoder.layers.\1.cross_attn_norm.weight"),
        (rf"{_STACK}\.mlp\.DenseReluDense\.wi_0\.weight", r"decoder.layers.\1.ffn.fc1.weight"),
        (rf"{_STACK}\.mlp\.DenseReluDense\.wi_1\.weight", r"decoder.layers.\1.ffn.gate.weight"),
        (rf"{_STACK}\.mlp\.DenseReluDense\.wo\.weight", r"decoder.layers.\1.ffn.fc2.weight"),
        (rf"{_STACK}\.mlp\.layer_norm\.weight", r"decoder.layers.\1.ffn_norm.weight"),
        (r"decoder\.final_layer_norm\.weight", "decoder.final_norm.weight"),
    ),
    tied=((r"decoder\.lm_head\.weight", "head.weight"),),
)
