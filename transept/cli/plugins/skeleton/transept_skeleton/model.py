"""The Skeleton model: an encoder/decoder transformer over tokens without padding.

The tokens of all sequences lie one after the other in one dimension. Attention knows from `metadata` which of them
belong together, masks, and keeps keys and values in the paged cache. All other layers see tokens only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from transept.authoring import (
    AttentionMetadata,
    AttentionType,
    ColumnParallelLinear,
    CrossAttention,
    ForConditionalGeneration,
    LayerContext,
    ModelShape,
    RowParallelLinear,
    SelfAttention,
    VocabParallelEmbedding,
    VocabParallelHead,
    get_activation,
)

POSITION_OFFSET = 2  # row of position 0 in the position tables


def residual(x: Tensor, norm: nn.Module, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
    """A sublayer with its norm and the connection around both. x: [tokens, d_model]. Returns the same shape."""
    return norm(x + sublayer(x))


class Layer(nn.Module):
    """What a layer of either side has: self-attention and a feed-forward network, each with its norm."""

    def __init__(self, config: Any, num_heads: int, d_ff: int, attn_type: AttentionType, context: LayerContext) -> None:
        super().__init__()
        self.self_attn = SelfAttention(config.d_model, num_heads, attn_type, context=context)
        self.self_attn_layer_norm = nn.LayerNorm(config.d_model)
        self.fc1 = ColumnParallelLinear(config.d_model, d_ff, group=context.group)
        self.fc2 = RowParallelLinear(d_ff, config.d_model, group=context.group)
        self.activation = get_activation(config.activation_function)
        self.final_layer_norm = nn.LayerNorm(config.d_model)

    def feed_forward(self, x: Tensor) -> Tensor:
        """x: [tokens, d_model]. Returns the same shape."""
        return self.fc2(self.activation(self.fc1(x)))


class EncoderLayer(Layer):
    """Self-attention, feed-forward."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__(config, config.encoder_attention_heads, config.encoder_ffn_dim, AttentionType.ENCODER, context)

    def forward(self, x: Tensor, metadata: AttentionMetadata) -> Tensor:
        """x: [encoder_tokens, d_model]. Returns the same shape."""
        x = residual(x, self.self_attn_layer_norm, lambda y: self.self_attn(y, None, metadata))
        return residual(x, self.final_layer_norm, self.feed_forward)


class DecoderLayer(Layer):
    """Self-attention, cross-attention, feed-forward."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__(config, config.decoder_attention_heads, config.decoder_ffn_dim, AttentionType.DECODER, context)
        self.encoder_attn = CrossAttention(config.d_model, config.decoder_attention_heads, context=context)
        self.encoder_attn_layer_norm = nn.LayerNorm(config.d_model)

    def forward(
        self, x: Tensor, encoder_hidden: Tensor | None, kv_cache: Tensor, metadata: AttentionMetadata
    ) -> Tensor:
        """x: [tokens, d_model], encoder_hidden: [encoder_tokens, d_model] of new requests. Returns x's shape."""
        cross = (encoder_hidden, kv_cache, metadata)
        x = residual(x, self.self_attn_layer_norm, lambda y: self.self_attn(y, kv_cache, metadata))
        x = residual(x, self.encoder_attn_layer_norm, lambda y: self.encoder_attn(y, *cross))
        return residual(x, self.final_layer_norm, self.feed_forward)


class Stack(nn.Module):
    """What both sides have: a table of learned positions, and layers."""

    def __init__(self, config: Any, layers: list[nn.Module]) -> None:
        super().__init__()
        self.embed_positions = nn.Embedding(config.max_position_embeddings + POSITION_OFFSET, config.d_model)
        self.layernorm_embedding = nn.LayerNorm(config.d_model)
        self.layers = nn.ModuleList(layers)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """x: token vectors [tokens, d_model], positions: [tokens]. Returns what the first layer takes, in x's shape."""
        return self.layernorm_embedding(x + self.embed_positions(positions + POSITION_OFFSET))


class Encoder(Stack):
    """Token vectors to hidden states."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__(config, [EncoderLayer(config, context) for _ in range(config.encoder_layers)])

    def forward(self, x: Tensor, positions: Tensor, metadata: AttentionMetadata) -> Tensor:
        """x: [encoder_tokens, d_model], positions: [encoder_tokens]. Returns x's shape."""
        x = self.embed(x, positions)
        for layer in self.layers:
            x = layer(x, metadata)
        return x


class Decoder(Stack):
    """Token vectors and the encoder's hidden states to hidden states."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__(config, [DecoderLayer(config, context) for _ in range(config.decoder_layers)])

    def forward(
        self,
        x: Tensor,
        positions: Tensor,
        encoder_hidden: Tensor | None,
        kv_caches: list[Tensor],
        metadata: AttentionMetadata,
    ) -> Tensor:
        """x: [tokens, d_model], positions: [tokens], kv_caches: one a layer. Returns x's shape."""
        x = self.embed(x, positions)
        for layer, kv_cache in zip(self.layers, kv_caches, strict=True):
            x = layer(x, encoder_hidden, kv_cache, metadata)
        return x


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
        """What the engine must know before it builds the model."""
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
        encoder_hidden_states: Tensor | None,
        kv_caches: list[Tensor],
        attn_metadata: AttentionMetadata,
    ) -> Tensor:
        """The decoder over this step's tokens. Ids and positions: [tokens]. Returns [tokens, d_model]."""
        x = self.shared(input_ids) * self.scale
        return self.decoder(x, positions, encoder_hidden_states, kv_caches, attn_metadata)

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """hidden: [rows, d_model]. Returns [rows, vocab_size]."""
        return self.lm_head(hidden) + self.final_logits_bias
