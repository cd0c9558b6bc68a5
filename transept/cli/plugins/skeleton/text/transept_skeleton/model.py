"""The Skeleton model: an encoder/decoder transformer over tokens without padding.

The tokens of all sequences lie one after the other in one dimension. Attention knows from `metadata` which of them
belong together, masks, and keeps keys and values in the paged cache. All other layers see tokens only.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from transept.authoring import (
    AttentionMetadata,
    DecoderLayers,
    EncoderLayers,
    ForConditionalGeneration,
    LayerContext,
    ModelShape,
    VocabParallelEmbedding,
    VocabParallelHead,
)

POSITION_OFFSET = 2  # row of position 0 in the position tables
PRE_NORM = False  # where the norm of each sublayer f is: norm(x + f(x)), or with True x + f(norm(x))


class Stack(nn.Module):
    """Encoder or decoder: a table of learned positions, and layers."""

    def __init__(self, config: Any, layers: nn.ModuleList) -> None:
        super().__init__()
        self.embed_positions = nn.Embedding(config.max_position_embeddings + POSITION_OFFSET, config.d_model)
        self.layernorm_embedding = nn.LayerNorm(config.d_model)
        self.layers = layers

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """x: token vectors [tokens, d_model], positions: [tokens]. Returns the first layer's input, in x's shape."""
        return self.layernorm_embedding(x + self.embed_positions(positions + POSITION_OFFSET))


class Encoder(Stack):
    """Token vectors to hidden states."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__(config, EncoderLayers.of(config, context, pre_norm=PRE_NORM))

    def forward(self, x: Tensor, positions: Tensor, metadata: AttentionMetadata) -> Tensor:
        """x: [encoder_tokens, d_model], positions: [encoder_tokens]. Returns x's shape."""
        return self.layers(self.embed(x, positions), metadata)


class Decoder(Stack):
    """Token vectors to hidden states."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__(config, DecoderLayers.of(config, context, pre_norm=PRE_NORM))

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        kv_caches: list[Tensor],
        metadata: AttentionMetadata,
    ) -> Tensor:
        """x: [tokens, d_model], positions: [tokens], kv_caches: one a layer. Returns x's shape."""
        return self.layers(self.embed(x, positions), kv_caches, metadata)


class SkeletonForConditionalGeneration(ForConditionalGeneration):
    """Both sides, the token table that they share, and the head."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__(config, context)
        self.shared = VocabParallelEmbedding(config.vocab_size, config.d_model, group=context.group)
        self.scale = config.d_model**0.5 if config.scale_embedding else 1.0
        self.encoder = Encoder(config, context)
        self.decoder = Decoder(config, context)
        tied = self.shared.weight if config.tie_word_embeddings else None
        self.lm_head = VocabParallelHead(config.vocab_size, config.d_model, group=context.group, weight=tied)
        self.final_logits_bias = nn.Parameter(torch.empty(1, config.vocab_size))

    @classmethod
    def shape(cls, config: Any) -> ModelShape:
        """Return the sizes that the engine needs before it builds the model."""
        return ModelShape(
            num_decoder_layers=config.decoder_layers,
            num_kv_heads=config.decoder_attention_heads,
            head_dim=config.d_model // config.decoder_attention_heads,
            vocab_size=config.vocab_size,
            max_source_positions=config.max_position_embeddings,
            max_target_positions=config.max_position_embeddings,
        )

    def encode(
        self,
        encoder_input_ids: Tensor | None,
        encoder_positions: Tensor | None,
        attn_metadata: AttentionMetadata,
        **multimodal_kwargs: list[Tensor],
    ) -> Tensor:
        """The encoder over the new requests. Ids and positions: [encoder_tokens]. Returns [encoder_tokens, d_model]."""
        x = self.shared(encoder_input_ids) * self.scale
        return self.encoder(x, encoder_positions, attn_metadata)

    def decode(
        self,
        input_ids: Tensor,
        positions: Tensor,
        kv_caches: list[Tensor],
        attn_metadata: AttentionMetadata,
    ) -> Tensor:
        """The decoder over this step's tokens. Ids and positions: [tokens]. Returns [tokens, d_model]."""
        x = self.shared(input_ids) * self.scale
        return self.decoder(x, positions, kv_caches, attn_metadata)

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """hidden: [rows, d_model]. Returns [rows, vocab_size]."""
        return self.lm_head(hidden) + self.final_logits_bias
