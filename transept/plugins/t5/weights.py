"""The weight names of T5 and related families in Hugging Face checkpoints, and config values derived from weights."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import torch

from transept.authoring import Checkpoint, PlainConfig, WeightMap, huggingface_config
from transept.plugins.t5.plain import PLAIN

if TYPE_CHECKING:
    from transformers import PretrainedConfig

EMBEDDINGS = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")  # one matrix
HEAD = "lm_head.weight"


def t5_config(checkpoint: Checkpoint) -> PretrainedConfig | PlainConfig:
    """Return config.json with tie_word_embeddings True if and only if the head's matrix equals the embedding's.

    In transformers 5, every config says that the head is tied, but T5 1.1, Flan-T5, mT5 and UMT5 have a separate head.
    The decoder start token is the padding token unless the config names another.
    """
    config = huggingface_config(checkpoint, PLAIN)
    config.tie_word_embeddings = _head_is_tied(checkpoint)
    if getattr(config, "decoder_start_token_id", None) is None:
        config.decoder_start_token_id = config.pad_token_id
    return config


def _head_is_tied(checkpoint: Checkpoint) -> bool:
    found = {name: tensor for name, tensor in checkpoint.tensors() if name in (*EMBEDDINGS, HEAD)}
    head = found.pop(HEAD, None)
    return head is None or not found or torch.equal(head, next(iter(found.values())))


_STACK = r"(encoder|decoder)"
_SELF = rf"{_STACK}\.block\.(\d+)\.layer\.0"
_CROSS = r"decoder\.block\.(\d+)\.layer\.1"
_FEED_FORWARD = r"(?:(encoder)\.block\.(\d+)\.layer\.1|(decoder)\.block\.(\d+)\.layer\.2)"

HUGGINGFACE = WeightMap(
    rules=(
        (r"shared\.weight", "shared.weight"),
        (rf"{_SELF}\.SelfAttention\.relative_attention_bias\.weight", r"\1.relative_attention_biases.\2"),
        (rf"{_SELF}\.SelfAttention\.([qkv])\.weight", r"\1.layers.\2.self_attn.qkv_proj.weight#\3"),
        (rf"{_SELF}\.SelfAttention\.o\.weight", r"\1.layers.\2.self_attn.out_proj.weight"),
        (rf"{_SELF}\.layer_norm\.weight", r"\1.layers.\2.self_attn_norm.weight"),
        (rf"{_CROSS}\.EncDecAttention\.([qkv])\.weight", r"decoder.layers.\1.cross_attn.qkv_proj.weight#\2"),
        (rf"{_CROSS}\.EncDecAttention\.o\.weight", r"decoder.layers.\1.cross_attn.out_proj.weight"),
        (rf"{_CROSS}\.layer_norm\.weight", r"decoder.layers.\1.cross_attn_norm.weight"),
        # the groups of the side that did not match are empty
        (rf"{_FEED_FORWARD}\.DenseReluDense\.(?:wi|wi_0)\.weight", r"\1\3.layers.\2\4.ffn.fc1.weight"),
        (rf"{_FEED_FORWARD}\.DenseReluDense\.wi_1\.weight", r"\1\3.layers.\2\4.ffn.gate.weight"),
        (rf"{_FEED_FORWARD}\.DenseReluDense\.wo\.weight", r"\1\3.layers.\2\4.ffn.fc2.weight"),
        (rf"{_FEED_FORWARD}\.layer_norm\.weight", r"\1\3.layers.\2\4.ffn_norm.weight"),
        (rf"{_STACK}\.final_layer_norm\.weight", r"\1.final_norm.weight"),
    ),
    tied=(
        (rf"{_STACK}\.embed_tokens\.weight", "shared.weight"),
        (r"lm_head\.weight", "head.weight"),
    ),
    ignored=(r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",),  # never used
    config=t5_config,
    plain=PLAIN,
)

# The encoder has transformers' names.
LONG = dataclasses.replace(
    HUGGINGFACE, rules=((r"(encoder\.(?:block|final_layer_norm)\..*)", r"\1"), *HUGGINGFACE.rules)
)
