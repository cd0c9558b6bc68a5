"""BART (Lewis et al. 2020) and mBART (Liu et al. 2020): learned positions, post-norm layers; mBART's are pre-norm."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from transept.authoring import (
    Attention,
    AttentionMetadata,
    AttentionType,
    ColumnParallelLinear,
    EncoderDecoderQKVParallelLinear,
    ForConditionalGeneration,
    LayerContext,
    ModelShape,
    QKVParallelLinear,
    RowParallelLinear,
    VocabParallelEmbedding,
    VocabParallelHead,
    get_activation,
)

POSITION_OFFSET = 2  # the first two rows of the position tables belong to padding


class BartSelfAttention(nn.Module):
    """Self-attention of either side."""

    def __init__(self, d_model: int, num_heads: int, attn_type: AttentionType, context: LayerContext) -> None:
        super().__init__()
        head_dim = d_model // num_heads
        self.attn_type = attn_type
        self.qkv_proj = QKVParallelLinear(d_model, num_heads, head_dim, group=context.group)
        self.out_proj = RowParallelLinear(d_model, d_model, group=context.group)
        self.attn = Attention(head_dim, context=context)

    def forward(self, x: Tensor, kv_cache: Tensor | None, metadata: AttentionMetadata) -> Tensor:
        """x: [tokens, d_model]. Returns the same shape."""
        return self.out_proj(self.attn(*self.qkv_proj(x), kv_cache, metadata, self.attn_type))


class BartCrossAttention(nn.Module):
    """Attention of decoder tokens over the encoder's output."""

    def __init__(self, d_model: int, num_heads: int, context: LayerContext) -> None:
        super().__init__()
        head_dim = d_model // num_heads
        self.qkv_proj = EncoderDecoderQKVParallelLinear(d_model, num_heads, head_dim, group=context.group)
        self.out_proj = RowParallelLinear(d_model, d_model, group=context.group)
        self.attn = Attention(head_dim, context=context)

    def forward(
        self, x: Tensor, encoder_hidden: Tensor | None, kv_cache: Tensor, metadata: AttentionMetadata
    ) -> Tensor:
        """x: [tokens, d_model], encoder_hidden: [encoder_tokens, d_model] of newcomers. Returns x's shape."""
        projected = self.qkv_proj(x, encoder_hidden)
        return self.out_proj(self.attn(*projected, kv_cache, metadata, AttentionType.ENCODER_DECODER))


class BartFeedForward(nn.Module):
    """Two linear layers with an activation between them."""

    def __init__(self, config: Any, d_ff: int, context: LayerContext) -> None:
        super().__init__()
        self.fc1 = ColumnParallelLinear(config.d_model, d_ff, group=context.group)
        self.fc2 = RowParallelLinear(d_ff, config.d_model, group=context.group)
        self.activation = get_activation(config.activation_function)

    def forward(self, x: Tensor) -> Tensor:
        """x: [tokens, d_model]. Returns the same shape."""
        return self.fc2(self.activation(self.fc1(x)))


class Residual(nn.Module):
    """A sublayer with its norm: ``norm(x + f(x))``, or ``x + f(norm(x))`` when pre-norm."""

    def __init__(self, sublayer: nn.Module, d_model: int, pre_norm: bool) -> None:
        super().__init__()
        self.sublayer = sublayer
        self.norm = nn.LayerNorm(d_model)
        self.pre_norm = pre_norm

    def forward(self, x: Tensor, *arguments: Any) -> Tensor:
        """x: [tokens, d_model]; arguments go to the sublayer. Returns x's shape."""
        if self.pre_norm:
            return x + self.sublayer(self.norm(x), *arguments)
        return self.norm(x + self.sublayer(x, *arguments))


class BartEncoderLayer(nn.Module):
    """Self-attention and feed-forward."""

    def __init__(self, config: Any, pre_norm: bool, context: LayerContext) -> None:
        super().__init__()
        attention = BartSelfAttention(config.d_model, config.encoder_attention_heads, AttentionType.ENCODER, context)
        self.self_attn = Residual(attention, config.d_model, pre_norm)
        self.ffn = Residual(BartFeedForward(config, config.encoder_ffn_dim, context), config.d_model, pre_norm)

    def forward(self, x: Tensor, metadata: AttentionMetadata) -> Tensor:
        """x: [encoder_tokens, d_model]. Returns the same shape."""
        return self.ffn(self.self_attn(x, None, metadata))


class BartDecoderLayer(nn.Module):
    """Self-attention, cross-attention and feed-forward."""

    def __init__(self, config: Any, pre_norm: bool, context: LayerContext) -> None:
        super().__init__()
        d_model, heads = config.d_model, config.decoder_attention_heads
        self.self_attn = Residual(BartSelfAttention(d_model, heads, AttentionType.DECODER, context), d_model, pre_norm)
        self.cross_attn = Residual(BartCrossAttention(d_model, heads, context), d_model, pre_norm)
        self.ffn = Residual(BartFeedForward(config, config.decoder_ffn_dim, context), d_model, pre_norm)

    def forward(
        self, x: Tensor, encoder_hidden: Tensor | None, kv_cache: Tensor, metadata: AttentionMetadata
    ) -> Tensor:
        """x: [tokens, d_model], encoder_hidden: [encoder_tokens, d_model] of newcomers. Returns x's shape."""
        x = self.self_attn(x, kv_cache, metadata)
        x = self.cross_attn(x, encoder_hidden, kv_cache, metadata)
        return self.ffn(x)


class BartEmbedding(nn.Module):
    """Tokens and learned positions to normalised vectors. The token table is shared by both sides."""

    def __init__(self, config: Any, embed_tokens: VocabParallelEmbedding) -> None:
        super().__init__()
        self.embed_tokens = embed_tokens
        self.scale = config.d_model**0.5 if config.scale_embedding else 1.0
        rows = config.max_position_embeddings + POSITION_OFFSET
        self.embed_positions = nn.Parameter(torch.empty(rows, config.d_model), requires_grad=False)
        self.layernorm_embedding = nn.LayerNorm(config.d_model)

    def forward(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        """token_ids, positions: [tokens]. Returns [tokens, d_model]."""
        x = self.embed_tokens(token_ids) * self.scale + self.embed_positions[positions + POSITION_OFFSET]
        return self.layernorm_embedding(x)


class BartEncoder(nn.Module):
    """Tokens to hidden states."""

    def __init__(
        self, config: Any, embed_tokens: VocabParallelEmbedding, pre_norm: bool, context: LayerContext
    ) -> None:
        super().__init__()
        self.embedding = BartEmbedding(config, embed_tokens)
        layers = range(config.encoder_layers)
        self.layers = nn.ModuleList(BartEncoderLayer(config, pre_norm, context) for _ in layers)
        self.layer_norm = nn.LayerNorm(config.d_model) if pre_norm else nn.Identity()

    def forward(self, token_ids: Tensor, positions: Tensor, metadata: AttentionMetadata) -> Tensor:
        """token_ids, positions: [encoder_tokens]. Returns [encoder_tokens, d_model]."""
        x = self.embedding(token_ids, positions)
        for layer in self.layers:
            x = layer(x, metadata)
        return self.layer_norm(x)


class BartDecoder(nn.Module):
    """Tokens and encoder hidden states to hidden states."""

    def __init__(
        self, config: Any, embed_tokens: VocabParallelEmbedding, pre_norm: bool, context: LayerContext
    ) -> None:
        super().__init__()
        self.embedding = BartEmbedding(config, embed_tokens)
        layers = range(config.decoder_layers)
        self.layers = nn.ModuleList(BartDecoderLayer(config, pre_norm, context) for _ in layers)
        self.layer_norm = nn.LayerNorm(config.d_model) if pre_norm else nn.Identity()

    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor,
        encoder_hidden: Tensor | None,
        kv_caches: list[Tensor],
        metadata: AttentionMetadata,
    ) -> Tensor:
        """input_ids, positions: [tokens]. Returns [tokens, d_model]."""
        x = self.embedding(input_ids, positions)
        for layer, kv_cache in zip(self.layers, kv_caches, strict=True):
            x = layer(x, encoder_hidden, kv_cache, metadata)
        return self.layer_norm(x)


class BartForConditionalGeneration(ForConditionalGeneration):
    """BART and mBART; a checkpoint of the bare model serves as well, its head being the embedding."""

    pre_norm = False

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__(config, context)
        self.shared = VocabParallelEmbedding(config.vocab_size, config.d_model, group=context.group)
        self.encoder = BartEncoder(config, self.shared, self.pre_norm, context)
        self.decoder = BartDecoder(config, self.shared, self.pre_norm, context)
        tied = self.shared.weight if config.tie_word_embeddings else None
        self.head = VocabParallelHead(config.vocab_size, config.d_model, group=context.group, weight=tied)
        self.final_logits_bias = nn.Parameter(torch.zeros(1, config.vocab_size), requires_grad=False)

    @classmethod
    def shape(cls, config: Any) -> ModelShape:
        """The model's shape, from a transformers BartConfig or MBartConfig."""
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
        """See ForConditionalGeneration.encode; text only."""
        return self.encoder(encoder_input_ids, encoder_positions, attn_metadata)

    def decode(
        self,
        input_ids: Tensor,
        positions: Tensor,
        encoder_hidden_states: Tensor | None,
        kv_caches: list[Tensor],
        attn_metadata: AttentionMetadata,
    ) -> Tensor:
        """See ForConditionalGeneration.decode."""
        return self.decoder(input_ids, positions, encoder_hidden_states, kv_caches, attn_metadata)

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """hidden: [rows, d_model]. Returns [rows, vocab_size]."""
        return self.head(hidden) + self.final_logits_bias


class MBartForConditionalGeneration(BartForConditionalGeneration):
    """mBART: norms before the sublayers, and one more after the last layer of each side."""

    pre_norm = True
