"""The public plugin API: all that a model plugin needs of Transept, besides `transept.multimodal`.

What a declaration needs (`hookimpl`, `ModelSpec`, `SpeechSpec`, `TextSpec`, `VisionSpec`) loads at once and without
torch; the layers load on first use, so that listing plugins stays quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from transept.errors import (
    CheckpointError,
    MediaError,
    ParameterError,
    PluginError,
    PromptError,
    UnsupportedTaskError,
    suggest,
)
from transept.registry.checkpoint_view import CheckpointView
from transept.registry.hookspecs import hookimpl
from transept.registry.spec import (
    ModelSpec,
    PublishedCheckpoint,
    SpeechSpec,
    SpeechTokens,
    TextSpec,
    TextTask,
    VisionSpec,
    VisionTask,
    dec_bos_prompt,
    dec_prompt,
    prepend_dec,
)

if TYPE_CHECKING:
    from transept.core.attention.attention import Attention, LayerContext
    from transept.core.attention.biases import AttentionBias, RelativePositionBias
    from transept.core.attention.metadata import AttentionMetadata, AttentionType
    from transept.core.attention.relative_keys import RelativeKeys
    from transept.core.checkpoints.checkpoint import Checkpoint
    from transept.core.checkpoints.hf_configs import huggingface_config
    from transept.core.checkpoints.layer_rules import bart_layer_rules
    from transept.core.checkpoints.plain_files import PlainFiles
    from transept.core.checkpoints.plain_tokenizer import PlainTokenizer
    from transept.core.checkpoints.plain_tokenizer_files import NamedTokenizer, PlainTokenizerFiles
    from transept.core.checkpoints.weight_map import WeightMap
    from transept.core.layers.activations import get_activation
    from transept.core.layers.convolution import GeluConv1d
    from transept.core.layers.embedding import VocabParallelEmbedding, VocabParallelHead
    from transept.core.layers.feed_forward import FeedForward
    from transept.core.layers.layer_config import LayerConfig
    from transept.core.layers.linear import (
        ColumnParallelLinear,
        EncoderDecoderQKVParallelLinear,
        QKVParallelLinear,
        RowParallelLinear,
    )
    from transept.core.layers.norm import RMSNorm
    from transept.core.layers.positions import fairseq_sinusoids
    from transept.core.layers.projected_attention import CrossAttention, SelfAttention
    from transept.core.layers.transformer import DecoderLayer, DecoderLayers, EncoderLayer, EncoderLayers
    from transept.core.layers.transformers_encoder import transformers_encoder
    from transept.core.model import ForConditionalGeneration, replayable
    from transept.core.model_shape import ModelShape
    from transept.core.parallel.group import ParallelGroup
    from transept.registry.plain_config import PlainConfig

_LAZY_IMPORTS = {
    "Attention": "transept.core.attention.attention",
    "AttentionBias": "transept.core.attention.biases",
    "AttentionMetadata": "transept.core.attention.metadata",
    "AttentionType": "transept.core.attention.metadata",
    "Checkpoint": "transept.core.checkpoints.checkpoint",
    "ColumnParallelLinear": "transept.core.layers.linear",
    "CrossAttention": "transept.core.layers.projected_attention",
    "DecoderLayer": "transept.core.layers.transformer",
    "DecoderLayers": "transept.core.layers.transformer",
    "EncoderDecoderQKVParallelLinear": "transept.core.layers.linear",
    "EncoderLayer": "transept.core.layers.transformer",
    "EncoderLayers": "transept.core.layers.transformer",
    "FeedForward": "transept.core.layers.feed_forward",
    "ForConditionalGeneration": "transept.core.model",
    "GeluConv1d": "transept.core.layers.convolution",
    "LayerConfig": "transept.core.layers.layer_config",
    "LayerContext": "transept.core.attention.attention",
    "ModelShape": "transept.core.model_shape",
    "NamedTokenizer": "transept.core.checkpoints.plain_tokenizer_files",
    "ParallelGroup": "transept.core.parallel.group",
    "PlainConfig": "transept.registry.plain_config",
    "PlainFiles": "transept.core.checkpoints.plain_files",
    "PlainTokenizer": "transept.core.checkpoints.plain_tokenizer",
    "PlainTokenizerFiles": "transept.core.checkpoints.plain_tokenizer_files",
    "QKVParallelLinear": "transept.core.layers.linear",
    "RMSNorm": "transept.core.layers.norm",
    "RelativeKeys": "transept.core.attention.relative_keys",
    "RelativePositionBias": "transept.core.attention.biases",
    "RowParallelLinear": "transept.core.layers.linear",
    "SelfAttention": "transept.core.layers.projected_attention",
    "VocabParallelEmbedding": "transept.core.layers.embedding",
    "VocabParallelHead": "transept.core.layers.embedding",
    "WeightMap": "transept.core.checkpoints.weight_map",
    "bart_layer_rules": "transept.core.checkpoints.layer_rules",
    "fairseq_sinusoids": "transept.core.layers.positions",
    "get_activation": "transept.core.layers.activations",
    "huggingface_config": "transept.core.checkpoints.hf_configs",
    "replayable": "transept.core.model",
    "transformers_encoder": "transept.core.layers.transformers_encoder",
}

__all__ = [
    "Attention",
    "AttentionBias",
    "AttentionMetadata",
    "AttentionType",
    "Checkpoint",
    "CheckpointError",
    "CheckpointView",
    "ColumnParallelLinear",
    "CrossAttention",
    "DecoderLayer",
    "DecoderLayers",
    "EncoderDecoderQKVParallelLinear",
    "EncoderLayer",
    "EncoderLayers",
    "FeedForward",
    "ForConditionalGeneration",
    "GeluConv1d",
    "LayerConfig",
    "LayerContext",
    "MediaError",
    "ModelShape",
    "ModelSpec",
    "NamedTokenizer",
    "ParallelGroup",
    "ParameterError",
    "PlainConfig",
    "PlainFiles",
    "PlainTokenizer",
    "PlainTokenizerFiles",
    "PluginError",
    "PromptError",
    "PublishedCheckpoint",
    "QKVParallelLinear",
    "RMSNorm",
    "RelativeKeys",
    "RelativePositionBias",
    "RowParallelLinear",
    "SelfAttention",
    "SpeechSpec",
    "SpeechTokens",
    "TextSpec",
    "TextTask",
    "UnsupportedTaskError",
    "VisionSpec",
    "VisionTask",
    "VocabParallelEmbedding",
    "VocabParallelHead",
    "WeightMap",
    "bart_layer_rules",
    "dec_bos_prompt",
    "dec_prompt",
    "fairseq_sinusoids",
    "get_activation",
    "hookimpl",
    "huggingface_config",
    "prepend_dec",
    "replayable",
    "suggest",
    "transformers_encoder",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY_IMPORTS:
        raise AttributeError(f"module 'transept.authoring' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY_IMPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
