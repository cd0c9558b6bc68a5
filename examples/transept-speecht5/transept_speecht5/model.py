"""SpeechT5's model: convolutions over the waveform, an encoder with relative keys, and a decoder of letters."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from transept.authoring import (
    AttentionMetadata,
    DecoderLayer,
    DecoderLayers,
    EncoderLayer,
    EncoderLayers,
    ForConditionalGeneration,
    LayerConfig,
    LayerContext,
    ModelShape,
    RelativeKeys,
    VocabParallelEmbedding,
    VocabParallelHead,
    fairseq_sinusoids,
    get_activation,
)
from transept_speecht5.audio import LONGEST, num_tokens


def layer_config(config: Any, num_heads: int, d_ff: int) -> LayerConfig:
    """The layers of one side, with norms after each sublayer."""
    norm = partial(nn.LayerNorm, eps=config.layer_norm_eps)
    return LayerConfig(config.hidden_size, num_heads, d_ff, config.hidden_act, pre_norm=False, norm=norm)


class Convolution(nn.Module):
    """One convolution over the waveform, maybe with a norm: of each channel over time, or of all channels."""

    def __init__(self, config: Any, index: int) -> None:
        super().__init__()
        channels, kernel, stride = config.conv_dim[index], config.conv_kernel[index], config.conv_stride[index]
        self.conv = nn.Conv1d((1, *config.conv_dim)[index], channels, kernel, stride, bias=config.conv_bias)
        self.over_time = config.feat_extract_norm == "group"
        norm = nn.GroupNorm(channels, channels) if self.over_time else nn.LayerNorm(channels)
        self.layer_norm = nn.Identity() if self.over_time and index else norm
        self.activation = get_activation(config.feat_extract_activation)

    def forward(self, x: Tensor) -> Tensor:
        """x: [1, channels, frames]. Returns [1, channels, frames / stride]."""
        x = self.conv(x)
        return self.activation(self.layer_norm(x) if self.over_time else self.layer_norm(x.mT).mT)


class Side(nn.Module):
    """The structure of both sides: sinusoidal positions and a stack of layers."""

    positions: Tensor  # [rows, hidden]; not a weight

    def __init__(self, config: Any, num_positions: int, layers: nn.ModuleList) -> None:
        super().__init__()
        self.padding = config.pad_token_id
        table = fairseq_sinusoids(num_positions, config.hidden_size, self.padding)
        self.register_buffer("positions", table, persistent=False)
        self.layers = layers


class Encoder(Side):
    """The speech prenet and the layers after it, which share embeddings of the distance between two tokens."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        size, heads = config.hidden_size, config.encoder_attention_heads
        layer = layer_config(config, heads, config.encoder_ffn_dim)
        layers = EncoderLayers(EncoderLayer(layer, context) for _ in range(config.encoder_layers))
        super().__init__(config, config.max_speech_positions, layers)
        self.convolutions = nn.Sequential(*(Convolution(config, index) for index in range(len(config.conv_dim))))
        width = config.conv_dim[-1]
        self.projection = nn.Sequential(nn.LayerNorm(width, eps=config.layer_norm_eps), nn.Linear(width, size))
        near, groups = config.num_conv_pos_embeddings, config.num_conv_pos_embedding_groups
        self.near = weight_norm(nn.Conv1d(size, size, near, padding=near // 2, groups=groups), dim=2)
        self.activation = get_activation(config.feat_extract_activation)
        self.layer_norm = nn.LayerNorm(size, eps=config.layer_norm_eps)
        # The first row is for the farthest key after its query; distances decrease from there.
        self.distances = nn.Parameter(torch.empty(2 * config.encoder_max_relative_position, size // heads))

    def embed(self, waveform: Tensor) -> Tensor:
        """One recording, [samples]. Returns [encoder_tokens, hidden]."""
        x = self.projection(self.convolutions(waveform[None, None])[0].T)
        near = self.activation(self.near(x.T[None])[0, :, : len(x)].T)
        return x + near + self.positions[self.padding + 1 :][: len(x)]

    def forward(self, metadata: AttentionMetadata, input_values: list[Tensor]) -> Tensor:
        """input_values: each input's waveform, [samples], of any length. Returns [encoder_tokens, hidden]."""
        x = self.layer_norm(torch.cat([self.embed(waveform) for waveform in input_values]))
        return self.layers(x, metadata, RelativeKeys(self.distances.flip(0), before=len(self.distances) // 2 - 1))


class Decoder(Side):
    """The text prenet and the layers after it; the padding token has no position."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        layer = layer_config(config, config.decoder_attention_heads, config.decoder_ffn_dim)
        layers = DecoderLayers(DecoderLayer(layer, context) for _ in range(config.decoder_layers))
        super().__init__(config, config.max_text_positions, layers)
        self.scale = config.hidden_size**0.5 if config.scale_embedding else 1.0
        self.embed_tokens = VocabParallelEmbedding(config.vocab_size, config.hidden_size, group=context.group)

    def forward(self, input_ids: Tensor, positions: Tensor, *step: Any) -> Tensor:
        """input_ids, positions: [tokens]. step: further arguments of layers. Returns [tokens, hidden]."""
        rows = torch.where(input_ids == self.padding, self.padding, positions + self.padding + 1)
        return self.layers(self.embed_tokens(input_ids) * self.scale + self.positions[rows], *step)


class SpeechT5ForSpeechToText(ForConditionalGeneration):
    """The speech recognition model. SpeechT5's models that generate speech are not supported."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__(config, context)
        self.encoder = Encoder(config, context)
        self.decoder = Decoder(config, context)
        tied = self.decoder.embed_tokens.weight if config.tie_word_embeddings else None
        self.head = VocabParallelHead(config.vocab_size, config.hidden_size, group=context.group, weight=tied)

    @classmethod
    def shape(cls, config: Any) -> ModelShape:
        """From a transformers SpeechT5Config."""
        return ModelShape.of_decoder(
            config,
            max_source_positions=min(num_tokens(LONGEST, config), config.max_speech_positions),
            max_target_positions=config.max_text_positions,
            encoder_takes_text=False,
        )

    @classmethod
    def longest_features(cls, config: Any) -> dict[str, Tensor]:
        """Silence."""
        return {"input_values": torch.zeros(LONGEST)}
