"""BART (Lewis et al. 2020), mBART (Liu et al. 2020) and Pegasus (Zhang et al. 2020): one architecture.

BART has learned positions and post-norm layers. mBART's layers are pre-norm, and so are those of Pegasus, whose
positions are sinusoidal.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from transept.authoring import (
    AttentionMetadata,
    AttentionType,
    CrossAttention,
    FeedForward,
    ForConditionalGeneration,
    LayerContext,
    ModelShape,
    SelfAttention,
    VocabParallelEmbedding,
    VocabParallelHead,
)

POSITION_OFFSET = 2  # the first two rows of the position tables belong to padding


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
        d_model, heads = config.d_model, config.encoder_attention_heads
        self_attn = SelfAttention(d_model, heads, AttentionType.ENCODER, context=context)
        ffn = FeedForward(d_model, config.encoder_ffn_dim, config.activation_function, group=context.group)
        self.self_attn = Residual(self_attn, d_model, pre_norm)
        self.ffn = Residual(ffn, d_model, pre_norm)

    def forward(self, x: Tensor, metadata: AttentionMetadata) -> Tensor:
        """x: [encoder_tokens, d_model]. Returns the same shape."""
        return self.ffn(self.self_attn(x, None, metadata))


class BartDecoderLayer(nn.Module):
    """Self-attention, cross-attention and feed-forward."""

    def __init__(self, config: Any, pre_norm: bool, context: LayerContext) -> None:
        super().__init__()
        d_model, heads = config.d_model, config.decoder_attention_heads
        self_attn = SelfAttention(d_model, heads, AttentionType.DECODER, context=context)
        ffn = FeedForward(d_model, config.decoder_ffn_dim, config.activation_function, group=context.group)
        self.self_attn = Residual(self_attn, d_model, pre_norm)
        self.cross_attn = Residual(CrossAttention(d_model, heads, context=context), d_model, pre_norm)
        self.ffn = Residual(ffn, d_model, pre_norm)

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


class PegasusEmbedding(nn.Module):
    """Tokens and sinusoidal positions (Vaswani et al. 2017, section 3.5), sines before cosines, without a norm."""

    embed_positions: Tensor

    def __init__(self, config: Any, embed_tokens: VocabParallelEmbedding) -> None:
        super().__init__()
        self.embed_tokens = embed_tokens
        self.scale = config.d_model**0.5 if config.scale_embedding else 1.0
        positions = sinusoids(config.max_position_embeddings, config.d_model)
        self.register_buffer("embed_positions", positions, persistent=False)

    def forward(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        """token_ids, positions: [tokens]. Returns [tokens, d_model]."""
        return self.embed_tokens(token_ids) * self.scale + self.embed_positions[positions]


def sinusoids(num_positions: int, width: int) -> Tensor:
    """sin(p · 10000^(-2i / width)) for all i, then the cosines: [num_positions, width] in the default dtype."""
    frequencies = 10000.0 ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.arange(num_positions, dtype=torch.float64)[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()[:, : width // 2]], dim=1).to(torch.get_default_dtype())


class BartEncoder(nn.Module):
    """Tokens to hidden states."""

    def __init__(self, config: Any, embedding: nn.Module, pre_norm: bool, context: LayerContext) -> None:
        super().__init__()
        self.embedding = embedding
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

    def __init__(self, config: Any, embedding: nn.Module, pre_norm: bool, context: LayerContext) -> None:
        super().__init__()
        self.embedding = embedding
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
    """BART and its kin; a checkpoint of the bare model serves as well, its head being the embedding."""

    embedding_class: ClassVar[type[nn.Module]] = BartEmbedding
    pre_norm: ClassVar[bool] = False

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__(config, context)
        self.shared = VocabParallelEmbedding(config.vocab_size, config.d_model, group=context.group)
        encoder_embedding = self.embedding_class(config, self.shared)
        self.encoder = BartEncoder(config, encoder_embedding, self.pre_norm, context)
        decoder_embedding = self.embedding_class(config, self.shared)
        self.decoder = BartDecoder(config, decoder_embedding, self.pre_norm, context)
        tied = self.shared.weight if config.tie_word_embeddings else None
        self.head = VocabParallelHead(config.vocab_size, config.d_model, group=context.group, weight=tied)
        self.final_logits_bias = nn.Parameter(torch.zeros(1, config.vocab_size), requires_grad=False)

    @classmethod
    def shape(cls, config: Any) -> ModelShape:
        """The model's shape, from a transformers BartConfig, MBartConfig or PegasusConfig."""
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


class PegasusForConditionalGeneration(MBartForConditionalGeneration):
    """Pegasus: mBART's layers over sinusoidal positions."""

    embedding_class = PegasusEmbedding
