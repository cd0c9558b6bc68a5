"""Weight names of TrOCR and Donut, as transformers 4 and 5 save them and as transformers 5 has them in its modules."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import torch

from transept.authoring import Checkpoint, WeightMap, huggingface_config

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_ENCODER = r"encoder\.(?:encoder\.layer|layers)\.(\d+)"
_DECODER = r"decoder\.model\.decoder"
_LAYER = rf"{_DECODER}\.layers\.(\d+)"
_QKV = r"(?:attention\.)?([qkv])(?:uery|ey|alue|_proj)"

_DECODER_LAYERS = (
    (rf"{_LAYER}\.self_attn\.([qkv])_proj\.(\w+)", r"decoder.layers.\1.self_attn.qkv_proj.\3#\2"),
    (rf"{_LAYER}\.self_attn\.out_proj\.(\w+)", r"decoder.layers.\1.self_attn.out_proj.\2"),
    (rf"{_LAYER}\.encoder_attn\.out_proj\.(\w+)", r"decoder.layers.\1.cross_attn.out_proj.\2"),
    (rf"{_LAYER}\.self_attn_layer_norm\.(\w+)", r"decoder.layers.\1.self_attn_norm.\2"),
    (rf"{_LAYER}\.encoder_attn_layer_norm\.(\w+)", r"decoder.layers.\1.cross_attn_norm.\2"),
    (rf"{_LAYER}\.final_layer_norm\.(\w+)", r"decoder.layers.\1.ffn_norm.\2"),
    (rf"{_LAYER}\.(fc[12])\.(\w+)", r"decoder.layers.\1.ffn.\2.\3"),
)
_EMBEDDING, _HEAD = rf"{_DECODER}\.embed_tokens\.weight", r"decoder\.(output_projection|lm_head)\.weight"


def nested_config(checkpoint: Checkpoint) -> PretrainedConfig:
    """config.json, but a head that is not the embedding's matrix is not tied to it, whatever that says.

    So transformers 5 does; a config of transformers 4 may leave out that it is tied, or that it is not.
    """
    config = huggingface_config(checkpoint)
    if config.decoder.tie_word_embeddings:
        found = [tensor for name, tensor in checkpoint.tensors() if re.fullmatch(f"{_EMBEDDING}|{_HEAD}", name)]
        config.decoder.tie_word_embeddings = len(found) < 2 or torch.equal(*found)
    return config


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
        (rf"{_LAYER}\.encoder_attn\.q_proj\.(\w+)", r"decoder.layers.\1.cross_attn.q_proj.\2"),
        (rf"{_LAYER}\.encoder_attn\.([kv])_proj\.(\w+)", r"decoder.layers.\1.cross_attn.kv_proj.\3#\2"),
        *_DECODER_LAYERS,
        (rf"{_DECODER}\.embed_positions\.weight", "decoder.embed_positions"),
        (rf"{_DECODER}\.((?:embed_tokens|layernorm_embedding)\..*)", r"decoder.\1"),
        (r"(enc_to_dec_proj\..*)", r"\1"),
    ),
    tied=((_HEAD, "head.weight"),),
    # _float_tensor: of sinusoids, which are computed
    ignored=(r"encoder\.(pooler\..*|embeddings\.mask_token)", rf"{_DECODER}\.embed_positions\._float_tensor"),
    config=nested_config,
)

DONUT = WeightMap(
    rules=(
        (rf"{_LAYER}\.encoder_attn\.([qkv])_proj\.(\w+)", r"decoder.layers.\1.cross_attn.qkv_proj.\3#\2"),
        *_DECODER_LAYERS,
        (rf"{_DECODER}\.embed_positions\.weight", "decoder.embedding.embed_positions"),
        (rf"{_DECODER}\.(embed_tokens|layernorm_embedding)\.(\w+)", r"decoder.embedding.\1.\2"),
        (rf"{_DECODER}\.(layer_norm\..*)", r"decoder.\1"),
        (r"((?:encoder|enc_to_dec_proj)\..*)", r"\1"),
    ),
    tied=((_HEAD, "head.weight"),),
    config=nested_config,
)
