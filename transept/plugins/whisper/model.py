"""Whisper (Radford et al. 2022): a convolutional stem and a pre-norm transformer encoder, a pre-norm decoder."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from transept.authoring import (
    AttentionMetadata,
    DecoderLayers,
    EncoderLayers,
    ForConditionalGeneration,
    GeluConv1d,
    LayerContext,
    ModelShape,
    VocabParallelEmbedding,
    VocabParallelHead,
)


class WhisperEncoder(nn.Module):
    """Log-mel windows to hidden states."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__()
        d_model = config.d_model
        self.conv1 = GeluConv1d(config.num_mel_bins, d_model, kernel_size=3, padding=1)
        self.conv2 = GeluConv1d(d_model, d_model, kernel_size=3, stride=2, padding=1)
        self.embed_positions = nn.Parameter(torch.empty(config.max_source_positions, d_model), requires_grad=False)
        self.layers = EncoderLayers.of(config, context, pre_norm=True)
        self.layer_norm = nn.LayerNorm(d_model)

    def forward(self, metadata: AttentionMetadata, input_features: list[Tensor]) -> Tensor:
        """input_features: [mels, frames] windows, whose frames may differ. Returns [frames of all / 2, d_model]."""
        if len({window.shape for window in input_features}) == 1:
            x = self._stem(torch.stack(input_features))
        else:
            x = torch.cat([self._stem(window[None]) for window in input_features])
        for layer in self.layers:  # one by one, so that no layer's input outlives it
            x = layer(x, metadata)
        return self.layer_norm(x)

    def _stem(self, windows: Tensor) -> Tensor:
        """windows: [windows, mels, frames]. Returns [windows * frames / 2, d_model]."""
        x = self.conv2(self.conv1(windows.to(self.embed_positions).transpose(1, 2)))  # [windows, frames / 2, d_model]
        return (x + self.embed_positions[: x.shape[1]]).flatten(0, 1).contiguous()


class WhisperDecoder(nn.Module):
    """Tokens to hidden states."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__()
        d_model = config.d_model
        self.embed_tokens = VocabParallelEmbedding(config.vocab_size, d_model, group=context.group)
        self.embed_positions = nn.Parameter(torch.empty(config.max_target_positions, d_model), requires_grad=False)
        self.layers = DecoderLayers.of(config, context, pre_norm=True)
        self.layer_norm = nn.LayerNorm(d_model)

    def forward(self, input_ids: Tensor, positions: Tensor, *step: Any) -> Tensor:
        """input_ids, positions: [tokens]. step: further arguments of layers. Returns [tokens, d_model]."""
        x = self.embed_tokens(input_ids, self.embed_positions, positions)
        return self.layers(x, *step, last_norm=self.layer_norm)


class WhisperForConditionalGeneration(ForConditionalGeneration):
    """Every Whisper size: 80 or 128 mel bins, with or without languages."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__(config, context)
        self.encoder = WhisperEncoder(config, context)
        self.decoder = WhisperDecoder(config, context)
        self.head = VocabParallelHead(
            config.vocab_size, config.d_model, group=context.group, weight=self.decoder.embed_tokens.weight
        )

    @classmethod
    def shape(cls, config: Any) -> ModelShape:
        """The model's shape, from a transformers WhisperConfig."""
        return ModelShape.of_decoder(
            config,
            max_source_positions=config.max_source_positions,
            max_target_positions=config.max_target_positions,
            encoder_takes_text=False,
        )

    @classmethod
    def longest_features(cls, config: Any) -> dict[str, Tensor]:
        """See ForConditionalGeneration.longest_features."""
        return {"input_features": torch.zeros(config.num_mel_bins, 2 * config.max_source_positions)}
