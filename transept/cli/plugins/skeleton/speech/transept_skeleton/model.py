"""The Skeleton model: convolutions over a spectrogram, then an encoder/decoder transformer over tokens without padding.

The tokens of all sequences lie one after the other in one dimension. Attention knows from `metadata` which of them
belong together, masks, and keeps keys and values in the paged cache. All other layers see tokens only.
"""

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

from .mapper import STRIDE, num_tokens

PRE_NORM = True  # where the norm of each sublayer f is: x + f(norm(x)), or with False norm(x + f(x))


class Stack(nn.Module):
    """Encoder or decoder: positions, layers and a final norm."""

    positions: Tensor  # [rows, d_model]; not a weight

    def __init__(self, config: Any, num_positions: int, layers: nn.ModuleList) -> None:
        super().__init__()
        self.padding = config.pad_token_id
        self.scale = config.d_model**0.5 if config.scale_embedding else 1.0
        table = fairseq_sinusoids(num_positions, config.d_model, config.pad_token_id)
        self.register_buffer("positions", table, persistent=False)
        self.layers = layers
        self.layer_norm = nn.LayerNorm(config.d_model)


class Encoder(Stack):
    """Spectrograms to hidden states."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        layers = EncoderLayers.of(config, context, pre_norm=PRE_NORM)
        super().__init__(config, num_tokens(config.max_source_positions, config), layers)
        inner = [config.conv_channels] * (len(config.conv_kernel_sizes) - 1)
        sizes = [2 * config.input_feat_per_channel, *inner, 2 * config.d_model]  # of each pair one is a gate
        self.conv_layers = nn.ModuleList(
            nn.Conv1d(sizes[i] // 2, sizes[i + 1], kernel, STRIDE, padding=kernel // 2)
            for i, kernel in enumerate(config.conv_kernel_sizes)
        )

    def embed(self, x: Tensor) -> Tensor:
        """x: one recording's [frames, bins]. Returns [encoder_tokens, d_model]."""
        x = x.T
        for convolution in self.conv_layers:
            x = F.glu(convolution(x), dim=0)
        return x.T * self.scale + self.positions[self.padding + 1 :][: x.shape[1]]

    def forward(self, recordings: list[Tensor], metadata: AttentionMetadata) -> Tensor:
        """recordings: [frames, bins] of each new request. Returns [encoder_tokens, d_model]."""
        x = torch.cat([self.embed(features) for features in recordings])
        return self.layer_norm(self.layers(x, metadata))


class Decoder(Stack):
    """Tokens to hidden states."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        layers = DecoderLayers.of(config, context, pre_norm=PRE_NORM)
        super().__init__(config, config.max_target_positions, layers)
        self.embed_tokens = VocabParallelEmbedding(config.vocab_size, config.d_model, group=context.group)

    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor,
        kv_caches: list[Tensor],
        metadata: AttentionMetadata,
    ) -> Tensor:
        """input_ids, positions: [tokens], kv_caches: one a layer. Returns [tokens, d_model]."""
        rows = torch.where(input_ids == self.padding, self.padding, positions + self.padding + 1)
        x = self.embed_tokens(input_ids) * self.scale + self.positions[rows]
        return self.layers(x, kv_caches, metadata, last_norm=self.layer_norm)


class SkeletonForConditionalGeneration(ForConditionalGeneration):
    """Both sides and the head."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__(config, context)
        self.encoder = Encoder(config, context)
        self.decoder = Decoder(config, context)
        tied = self.decoder.embed_tokens.weight if config.tie_word_embeddings else None
        self.lm_head = VocabParallelHead(config.vocab_size, config.d_model, group=context.group, weight=tied)

    @classmethod
    def shape(cls, config: Any) -> ModelShape:
        """Return the sizes that the engine needs before it builds the model."""
        return ModelShape(
            num_decoder_layers=config.decoder_layers,
            num_kv_heads=config.decoder_attention_heads,
            head_dim=config.d_model // config.decoder_attention_heads,
            vocab_size=config.vocab_size,
            max_source_positions=num_tokens(config.max_source_positions, config),
            max_target_positions=config.max_target_positions,
            encoder_takes_text=False,
        )

    @classmethod
    def longest_features(cls, config: Any) -> dict[str, Tensor]:
        """Return the largest input of the mapper."""
        return {"input_features": torch.zeros(config.max_source_positions, config.input_feat_per_channel)}

    def encode(
        self,
        encoder_input_ids: Tensor | None,
        encoder_positions: Tensor | None,
        attn_metadata: AttentionMetadata,
        **multimodal_kwargs: list[Tensor],
    ) -> Tensor:
        """input_features: [frames, bins] of each new request. Returns [encoder_tokens, d_model]."""
        return self.encoder(multimodal_kwargs["input_features"], attn_metadata)

    def decode(
        self,
        input_ids: Tensor,
        positions: Tensor,
        kv_caches: list[Tensor],
        attn_metadata: AttentionMetadata,
    ) -> Tensor:
        """The decoder over this step's tokens. Ids and positions: [tokens]. Returns [tokens, d_model]."""
        return self.decoder(input_ids, positions, kv_caches, attn_metadata)

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """hidden: [rows, d_model]. Returns [rows, vocab_size]."""
        return self.lm_head(hidden)
