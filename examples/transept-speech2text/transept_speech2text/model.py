"""Speech2Text's model: convolutions over log-mel frames, then pre-norm layers with sinusoidal positions."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transept.authoring import (
    AttentionMetadata,
    DecoderLayers,
    EncoderLayers,
    ForConditionalGeneration,
    LayerContext,
    ModelShape,
    VocabParallelEmbedding,
    VocabParallelHead,
    fairseq_sinusoids,
)
from transept_speech2text.audio import num_bins, num_tokens

STRIDE = 2  # of every convolution


class Side(nn.Module):
    """The structure of both sides: positions, a stack of layers, and a norm."""

    positions: Tensor  # [rows, d_model]; not a weight

    def __init__(self, config: Any, num_positions: int, layers: nn.ModuleList) -> None:
        super().__init__()
        self.padding = config.pad_token_id
        self.scale = config.d_model**0.5 if config.scale_embedding else 1.0
        table = fairseq_sinusoids(num_positions, config.d_model, self.padding)
        self.register_buffer("positions", table, persistent=False)
        self.layers = layers
        self.layer_norm = nn.LayerNorm(config.d_model)


class Encoder(Side):
    """Convolutions with gates over features, and layers after them."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        layers = EncoderLayers.of(config, context, pre_norm=True)
        super().__init__(config, num_tokens(config.max_source_positions, config), layers)
        last = len(config.conv_kernel_sizes) - 1
        self.conv_layers = nn.ModuleList(
            nn.Conv1d(
                config.conv_channels // 2 if index else num_bins(config),  # of each pair of channels one is a gate
                config.conv_channels if index < last else 2 * config.d_model,
                kernel,
                STRIDE,
                padding=kernel // 2,
            )
            for index, kernel in enumerate(config.conv_kernel_sizes)
        )

    def embed(self, x: Tensor) -> Tensor:
        """One recording's features, [frames, bins]. Returns [encoder_tokens, d_model]."""
        x = x.T
        for convolution in self.conv_layers:
            x = F.glu(convolution(x), dim=0)
        return x.T * self.scale + self.positions[self.padding + 1 :][: x.shape[1]]

    def forward(self, metadata: AttentionMetadata, input_features: list[Tensor]) -> Tensor:
        """input_features: each input's [frames, bins]. Returns [encoder_tokens, d_model]."""
        x = torch.cat([self.embed(features) for features in input_features])
        return self.layer_norm(self.layers(x, metadata))


class Decoder(Side):
    """Layers after embedded tokens; the padding token has no position."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        layers = DecoderLayers.of(config, context, pre_norm=True)
        super().__init__(config, config.max_target_positions, layers)
        self.embed_tokens = VocabParallelEmbedding(config.vocab_size, config.d_model, group=context.group)

    def forward(self, input_ids: Tensor, positions: Tensor, *step: Any) -> Tensor:
        """input_ids, positions: [tokens]. step: further arguments of layers. Returns [tokens, d_model]."""
        rows = torch.where(input_ids == self.padding, self.padding, positions + self.padding + 1)
        x = self.embed_tokens(input_ids) * self.scale + self.positions[rows]
        return self.layers(x, *step, last_norm=self.layer_norm)


class Speech2TextForConditionalGeneration(ForConditionalGeneration):
    """All released sizes, for recognition and for translation."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__(config, context)
        self.encoder = Encoder(config, context)
        self.decoder = Decoder(config, context)
        tied = self.decoder.embed_tokens.weight if config.tie_word_embeddings else None
        self.head = VocabParallelHead(config.vocab_size, config.d_model, group=context.group, weight=tied)

    @classmethod
    def shape(cls, config: Any) -> ModelShape:
        """From a transformers Speech2TextConfig, whose max_source_positions are frames."""
        return ModelShape.of_decoder(
            config,
            max_source_positions=num_tokens(config.max_source_positions, config),
            max_target_positions=config.max_target_positions,
            encoder_takes_text=False,
        )

    @classmethod
    def longest_features(cls, config: Any) -> dict[str, Tensor]:
        """Frames without anything in them."""
        return {"input_features": torch.zeros(config.max_source_positions, num_bins(config))}
