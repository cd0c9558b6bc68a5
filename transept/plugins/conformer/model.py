"""Canary and Cohere Transcribe: a Fast Conformer encoder, and a pre-norm decoder whose embeddings are normalised."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from transept.authoring import (
    AttentionMetadata,
    ConformerConfig,
    ConformerLayer,
    DecoderLayers,
    ForConditionalGeneration,
    LayerConfig,
    LayerContext,
    Linear,
    ModelShape,
    Subsampling2d,
    VocabParallelEmbedding,
    VocabParallelHead,
)
from transept.plugins.conformer import CANARY_SECONDS, SAMPLE_RATE
from transept.plugins.conformer.features import HOP

LONGEST = round(CANARY_SECONDS * SAMPLE_RATE) // HOP  # frames
LOWEST_FREQUENCY = 10_000.0


class Encoder(nn.Module):
    """Features to hidden states. config: a ParakeetEncoderConfig. projected: size of the output, if it differs."""

    def __init__(self, config: Any, context: LayerContext, projected: int | None = None) -> None:
        super().__init__()
        self.scale = config.hidden_size**0.5 if config.scale_input else 1.0
        self.subsampling = Subsampling2d(
            config.num_mel_bins, config.hidden_size, config.subsampling_conv_channels, config.subsampling_factor
        )
        layer = ConformerConfig(
            config.hidden_size,
            config.num_attention_heads,
            config.intermediate_size,
            config.conv_kernel_size,
            longest=Subsampling2d.num_tokens(LONGEST, config.subsampling_factor),
            activation=config.hidden_act,
            bias=config.attention_bias,
            conv_bias=config.convolution_bias,
        )
        self.layers = nn.ModuleList(ConformerLayer(layer, context) for _ in range(config.num_hidden_layers))
        self.proj = None if projected is None else Linear(config.hidden_size, projected)

    def forward(self, metadata: AttentionMetadata, input_features: list[Tensor]) -> Tensor:
        """input_features: each input's [frames, bins]. Returns [encoder_tokens, hidden]."""
        x = self.subsampling(input_features) * self.scale
        for layer in self.layers:
            x = layer(x, metadata)
        return x if self.proj is None else self.proj(x)


class Decoder(nn.Module):
    """Tokens to hidden states. config: the decoder's."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__()
        size = config.hidden_size
        self.embed_tokens = VocabParallelEmbedding(config.vocab_size, size, group=context.group)
        self.positions = nn.Embedding(config.max_position_embeddings, size)
        self.embed_norm = nn.LayerNorm(size)
        layer = LayerConfig(
            size,
            config.num_attention_heads,
            config.intermediate_size,
            config.hidden_act,
            pre_norm=True,
            num_kv_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            qkv_bias=config.attention_bias,
        )
        self.layers = DecoderLayers.alike(layer, config.num_hidden_layers, context)
        self.norm = nn.LayerNorm(size)

    def forward(self, input_ids: Tensor, positions: Tensor, *step: Any) -> Tensor:
        """input_ids, positions: [tokens]. step: further arguments of layers. Returns [tokens, hidden]."""
        x = self.embed_norm(self.embed_tokens(input_ids, self.positions.weight, positions))
        return self.layers(x, *step, last_norm=self.norm)


class FastConformer(ForConditionalGeneration):
    """The parts that both families share. projects: True if the encoder's output is projected to the decoder's size."""

    projects = False

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__(config, context)
        decoder = self.decoder_config(config)
        projected = decoder.hidden_size if self.projects else None
        self.encoder = Encoder(config.encoder_config, context, projected)
        self.decoder = Decoder(decoder, context)
        tied = self.decoder.embed_tokens.weight if config.tie_word_embeddings else None
        self.head = VocabParallelHead(
            decoder.vocab_size, decoder.hidden_size, group=context.group, weight=tied, bias=True
        )

    @classmethod
    def decoder_config(cls, config: Any) -> Any:
        """The config of the decoder."""
        return config

    @classmethod
    def shape(cls, config: Any) -> ModelShape:
        """From transformers' CanaryConfig or CohereAsrConfig."""
        decoder, encoder = cls.decoder_config(config), config.encoder_config
        return ModelShape(
            num_decoder_layers=decoder.num_hidden_layers,
            num_kv_heads=decoder.num_key_value_heads,
            head_dim=decoder.head_dim,
            vocab_size=decoder.vocab_size,
            max_source_positions=Subsampling2d.num_tokens(LONGEST, encoder.subsampling_factor),
            max_target_positions=decoder.max_position_embeddings,
            encoder_takes_text=False,
        )

    @classmethod
    def longest_features(cls, config: Any) -> dict[str, Tensor]:
        """Frames without anything in them."""
        return {"input_features": torch.zeros(LONGEST, config.encoder_config.num_mel_bins)}


class CohereAsrForConditionalGeneration(FastConformer):
    """Cohere Transcribe."""

    projects = True


class CanaryForConditionalGeneration(FastConformer):
    """Canary, whose positions are not a weight."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__(config, context)
        positions, decoder = self.decoder.positions, self.decoder_config(config)
        with torch.device("cpu"):
            table = position_sinusoids(decoder.max_position_embeddings, decoder.hidden_size)
        del positions.weight
        positions.register_buffer("weight", table.to(self.compute_dtype), persistent=False)

    @classmethod
    def decoder_config(cls, config: Any) -> Any:
        """The config of the decoder."""
        return config.decoder_config


def position_sinusoids(num_positions: int, size: int) -> Tensor:
    """Return the sines, then the cosines of positions, divided by √size: [num_positions, size]."""
    slowest = LOWEST_FREQUENCY ** ((size - 2) / size)
    steps = torch.exp(-math.log(slowest) / (size // 2 - 1) * torch.arange(size // 2).float())
    angles = torch.arange(num_positions)[:, None] * steps
    return torch.cat([angles.sin(), angles.cos()], dim=1) / math.sqrt(size)
