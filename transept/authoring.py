"""The public plugin API: all that a model plugin needs of Transept, besides `transept.multimodal`.

Names load on first use. The names for declarations (`hookimpl`, `ModelSpec`, `SpeechSpec`, `TextSpec`, `VisionSpec`)
load without torch, so that listing plugins is fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transept.core.attention.attention import Attention as Attention
    from transept.core.attention.attention import LayerContext as LayerContext
    from transept.core.attention.biases import AttentionBias as AttentionBias
    from transept.core.attention.biases import RelativePositionBias as RelativePositionBias
    from transept.core.attention.metadata import AttentionMetadata as AttentionMetadata
    from transept.core.attention.metadata import AttentionType as AttentionType
    from transept.core.attention.relative_keys import RelativeKeys as RelativeKeys
    from transept.core.checkpoints.checkpoint import Checkpoint as Checkpoint
    from transept.core.checkpoints.hf_configs import huggingface_config as huggingface_config
    from transept.core.checkpoints.layer_rules import bart_layer_rules as bart_layer_rules
    from transept.core.checkpoints.layer_rules import conformer_layer_rules as conformer_layer_rules
    from transept.core.checkpoints.plain_files import PlainFiles as PlainFiles
    from transept.core.checkpoints.plain_tokenizer import PlainTokenizer as PlainTokenizer
    from transept.core.checkpoints.plain_tokenizer_files import NamedTokenizer as NamedTokenizer
    from transept.core.checkpoints.plain_tokenizer_files import PlainTokenizerFiles as PlainTokenizerFiles
    from transept.core.checkpoints.weight_map import WeightMap as WeightMap
    from transept.core.layers.activations import get_activation as get_activation
    from transept.core.layers.conformer import ConformerConfig as ConformerConfig
    from transept.core.layers.conformer import ConformerLayer as ConformerLayer
    from transept.core.layers.conformer import ConvolutionModule as ConvolutionModule
    from transept.core.layers.conformer import RelativeSelfAttention as RelativeSelfAttention
    from transept.core.layers.convolution import GeluConv1d as GeluConv1d
    from transept.core.layers.embedding import VocabParallelEmbedding as VocabParallelEmbedding
    from transept.core.layers.embedding import VocabParallelHead as VocabParallelHead
    from transept.core.layers.feed_forward import FeedForward as FeedForward
    from transept.core.layers.layer_config import LayerConfig as LayerConfig
    from transept.core.layers.linear import ColumnParallelLinear as ColumnParallelLinear
    from transept.core.layers.linear import EncoderDecoderQKVParallelLinear as EncoderDecoderQKVParallelLinear
    from transept.core.layers.linear import Linear as Linear
    from transept.core.layers.linear import QKVParallelLinear as QKVParallelLinear
    from transept.core.layers.linear import RowParallelLinear as RowParallelLinear
    from transept.core.layers.norm import RMSNorm as RMSNorm
    from transept.core.layers.positions import fairseq_sinusoids as fairseq_sinusoids
    from transept.core.layers.projected_attention import CrossAttention as CrossAttention
    from transept.core.layers.projected_attention import SelfAttention as SelfAttention
    from transept.core.layers.subsampling import Subsampling2d as Subsampling2d
    from transept.core.layers.transformer import DecoderLayer as DecoderLayer
    from transept.core.layers.transformer import DecoderLayers as DecoderLayers
    from transept.core.layers.transformer import EncoderLayer as EncoderLayer
    from transept.core.layers.transformer import EncoderLayers as EncoderLayers
    from transept.core.layers.transformers_encoder import transformers_encoder as transformers_encoder
    from transept.core.model import ForConditionalGeneration as ForConditionalGeneration
    from transept.core.model import replayable as replayable
    from transept.core.model_shape import ModelShape as ModelShape
    from transept.core.parallel.group import ParallelGroup as ParallelGroup
    from transept.errors import CheckpointError as CheckpointError
    from transept.errors import MediaError as MediaError
    from transept.errors import ParameterError as ParameterError
    from transept.errors import PluginError as PluginError
    from transept.errors import PromptError as PromptError
    from transept.errors import UnsupportedTaskError as UnsupportedTaskError
    from transept.errors import suggest as suggest
    from transept.registry.checkpoint_view import CheckpointView as CheckpointView
    from transept.registry.hookspecs import hookimpl as hookimpl
    from transept.registry.plain_config import PlainConfig as PlainConfig
    from transept.registry.spec import ModelSpec as ModelSpec
    from transept.registry.spec import PublishedCheckpoint as PublishedCheckpoint
    from transept.registry.spec import SpeechSpec as SpeechSpec
    from transept.registry.spec import SpeechTokens as SpeechTokens
    from transept.registry.spec import TextSpec as TextSpec
    from transept.registry.spec import TextTask as TextTask
    from transept.registry.spec import VisionSpec as VisionSpec
    from transept.registry.spec import VisionTask as VisionTask
    from transept.registry.spec import dec_bos_prompt as dec_bos_prompt
    from transept.registry.spec import dec_prompt as dec_prompt
    from transept.registry.spec import prepend_dec as prepend_dec
    from transept.registry.voice_model import VoiceModel as VoiceModel

_NAMES_OF_MODULES = {
    "transept.errors": (
        "CheckpointError MediaError ParameterError PluginError PromptError UnsupportedTaskError suggest"
    ),
    "transept.registry.checkpoint_view": "CheckpointView",
    "transept.registry.hookspecs": "hookimpl",
    "transept.registry.spec": (
        "ModelSpec PublishedCheckpoint SpeechSpec SpeechTokens TextSpec TextTask VisionSpec VisionTask dec_bos_prompt "
        "dec_prompt prepend_dec"
    ),
    "transept.registry.voice_model": "VoiceModel",
    "transept.core.attention.attention": "Attention LayerContext",
    "transept.core.attention.biases": "AttentionBias RelativePositionBias",
    "transept.core.attention.metadata": "AttentionMetadata AttentionType",
    "transept.core.attention.relative_keys": "RelativeKeys",
    "transept.core.checkpoints.checkpoint": "Checkpoint",
    "transept.core.checkpoints.hf_configs": "huggingface_config",
    "transept.core.checkpoints.layer_rules": "bart_layer_rules conformer_layer_rules",
    "transept.core.checkpoints.plain_files": "PlainFiles",
    "transept.core.checkpoints.plain_tokenizer": "PlainTokenizer",
    "transept.core.checkpoints.plain_tokenizer_files": "NamedTokenizer PlainTokenizerFiles",
    "transept.core.checkpoints.weight_map": "WeightMap",
    "transept.core.layers.activations": "get_activation",
    "transept.core.layers.conformer": "ConformerConfig ConformerLayer ConvolutionModule RelativeSelfAttention",
    "transept.core.layers.convolution": "GeluConv1d",
    "transept.core.layers.embedding": "VocabParallelEmbedding VocabParallelHead",
    "transept.core.layers.feed_forward": "FeedForward",
    "transept.core.layers.layer_config": "LayerConfig",
    "transept.core.layers.linear": (
        "ColumnParallelLinear EncoderDecoderQKVParallelLinear Linear QKVParallelLinear RowParallelLinear"
    ),
    "transept.core.layers.norm": "RMSNorm",
    "transept.core.layers.positions": "fairseq_sinusoids",
    "transept.core.layers.projected_attention": "CrossAttention SelfAttention",
    "transept.core.layers.subsampling": "Subsampling2d",
    "transept.core.layers.transformer": "DecoderLayer DecoderLayers EncoderLayer EncoderLayers",
    "transept.core.layers.transformers_encoder": "transformers_encoder",
    "transept.core.model": "ForConditionalGeneration replayable",
    "transept.core.model_shape": "ModelShape",
    "transept.core.parallel.group": "ParallelGroup",
    "transept.registry.plain_config": "PlainConfig",
}
_LAZY_IMPORTS = {name: module for module, names in _NAMES_OF_MODULES.items() for name in names.split()}

__all__ = sorted(_LAZY_IMPORTS)


def __getattr__(name: str) -> Any:
    if name not in _LAZY_IMPORTS:
        raise AttributeError(f"module 'transept.authoring' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY_IMPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
