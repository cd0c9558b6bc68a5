"""Self- and cross-attention with their projections, as the decoder and encoder layers of most families have them."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from transept.core.attention.biases import AttentionBias
from transept.core.attention.layer import Attention, LayerContext
from transept.core.attention.metadata import AttentionMetadata, AttentionType
from transept.core.layers.linear import (
    EncoderDecoderQKVParallelLinear,
    QKVParallelLinear,
    RowParallelLinear,
    TwoWidthQKVParallelLinear,
)


class SelfAttention(nn.Module):
    """Self-attention of one side: ``qkv_proj``, attention, ``out_proj``.

    attn_type: ENCODER or DECODER. num_kv_heads: of keys and values, each for as many query heads (Ainslie et al. 2023);
    default num_heads. head_dim: default hidden_size / num_heads. scale: default 1/√head_dim.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        attn_type: AttentionType,
        *,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        bias: bool = True,
        scale: float | None = None,
        context: LayerContext,
    ) -> None:
        super().__init__()
        head_dim = head_dim or hidden_size // num_heads
        self.attn_type = attn_type
        self.qkv_proj = QKVParallelLinear(
            hidden_size, num_heads, head_dim, num_kv_heads=num_kv_heads, bias=bias, group=context.group
        )
        self.out_proj = RowParallelLinear(num_heads * head_dim, hidden_size, bias=bias, group=context.group)
        self.attn = Attention(head_dim, scale=scale, context=context)

    def forward(
        self,
        x: Tensor,
        kv_cache: Tensor | None,
        metadata: AttentionMetadata,
        attention_bias: AttentionBias | None = None,
    ) -> Tensor:
        """x: [tokens, hidden]. kv_cache: this layer's, None in an encoder. Returns x's shape."""
        attended = self.attn(*self.qkv_proj(x), kv_cache, metadata, self.attn_type, attention_bias)
        return self.out_proj(attended)


class CrossAttention(nn.Module):
    """Attention of decoder tokens over the encoder's output: ``qkv_proj``, attention, ``out_proj``.

    num_kv_heads, head_dim, scale: see SelfAttention. encoder_hidden_size: of the encoder's output; given, the query has
    a matrix of its own, ``qkv_proj.q`` beside ``qkv_proj.kv``. Default: hidden_size, and one matrix.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        *,
        encoder_hidden_size: int | None = None,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        bias: bool = True,
        scale: float | None = None,
        context: LayerContext,
    ) -> None:
        super().__init__()
        head_dim = head_dim or hidden_size // num_heads
        sizes: dict[str, Any] = {"num_kv_heads": num_kv_heads, "bias": bias, "group": context.group}
        self.qkv_proj = (
            EncoderDecoderQKVParallelLinear(hidden_size, num_heads, head_dim, **sizes)
            if encoder_hidden_size is None
            else TwoWidthQKVParallelLinear(hidden_size, encoder_hidden_size, num_heads, head_dim, **sizes)
        )
        self.out_proj = RowParallelLinear(num_heads * head_dim, hidden_size, bias=bias, group=context.group)
        self.attn = Attention(head_dim, scale=scale, context=context)

    def forward(
        self, x: Tensor, encoder_hidden: Tensor | None, kv_cache: Tensor, metadata: AttentionMetadata
    ) -> Tensor:
        """x: [tokens, hidden], encoder_hidden: [encoder_tokens, encoder_hidden] of prefills, if any.

        Returns x's shape.
        """
        projected = self.qkv_proj(x, encoder_hidden)
        return self.out_proj(self.attn(*projected, kv_cache, metadata, AttentionType.ENCODER_DECODER))
