"""SelfAttention and CrossAttention: attention with its projections, as in the layers of most families."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor, nn

from transept.core.attention.attention import Attention, LayerContext
from transept.core.attention.biases import AttentionBias
from transept.core.attention.metadata import AttentionMetadata, AttentionType
from transept.core.attention.relative_keys import RelativeKeys
from transept.core.layers.linear import (
    ColumnParallelLinear,
    EncoderDecoderQKVParallelLinear,
    QKVParallelLinear,
    RowParallelLinear,
)
from transept.core.layers.rotary import check_rotary, rotate
from transept.errors import PluginError


class SelfAttention(nn.Module):
    """Self-attention of one side: ``qkv_proj``, attention, ``out_proj``.

    Its parameters are ``qkv_proj.weight`` and ``qkv_proj.bias``, with parts ``q``, ``k`` and ``v``, ``out_proj.weight``
    and ``out_proj.bias``.

    attn_type: ENCODER or DECODER.
    num_kv_heads: heads of keys and values, each for a group of query heads (Ainslie et al. 2023); default num_heads.
    head_dim: default hidden_size / num_heads.
    bias: True if the projections have a bias.
    qkv_bias: True if qkv_proj has a bias; default: bias.
    scale, softcap, window: see Attention.
    rotary: theta of the rotary positions of queries and keys (Su et al. 2021); default none. Element i of a head's
        first half is rotated with element i of the second half, by ``position / theta^(2i / head_dim)``, as in Llama
        and Gemma.
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
        qkv_bias: bool | None = None,
        scale: float | None = None,
        softcap: float | None = None,
        window: int | tuple[int, int] | None = None,
        rotary: float | None = None,
        context: LayerContext,
    ) -> None:
        super().__init__()
        head_dim = head_dim or hidden_size // num_heads
        if rotary is not None:
            check_rotary(rotary, head_dim)
        self.attn_type, self.rotary = attn_type, rotary
        stacked_bias = bias if qkv_bias is None else qkv_bias
        self.qkv_proj = QKVParallelLinear(
            hidden_size, num_heads, head_dim, num_kv_heads=num_kv_heads, bias=stacked_bias, group=context.group
        )
        self.out_proj = RowParallelLinear(num_heads * head_dim, hidden_size, bias=bias, group=context.group)
        self.attn = Attention(head_dim, scale=scale, softcap=softcap, window=window, context=context)

    def forward(
        self,
        x: Tensor,
        kv_cache: Tensor | None,
        metadata: AttentionMetadata,
        attention_bias: AttentionBias | RelativeKeys | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """Attend. x: [tokens, hidden]. kv_cache: this layer's, None in an encoder. positions: [tokens], if rotary.

        Returns x's shape. Raises PluginError if rotary positions are not given.
        """
        query, key, value = self.qkv_proj(x)
        if self.rotary is not None:
            if positions is None:
                raise PluginError("this layer has rotary positions: call it with positions=, those that the model gets")
            query, key = rotate(query, key, positions, self.rotary)
        return self.out_proj(self.attn(query, key, value, kv_cache, metadata, self.attn_type, attention_bias))


class MakesKeysAndValues(Protocol):
    """The engine's interface of a decoder layer's cross-attention."""

    def keys_and_values(self, encoder_hidden: Tensor) -> tuple[Tensor, Tensor]:
        """encoder_hidden: [encoder_tokens, encoder's hidden]. Returns both, [encoder_tokens, kv_heads, head_dim]."""


class CrossAttention(nn.Module):
    """Attention of decoder tokens over the encoder's output: ``qkv_proj``, attention, ``out_proj``.

    Its keys and values are in the cache before the decoder runs: the encoder runner writes `keys_and_values` of each
    input once (`transept.core.execution.encoder_runner`).

    encoder_hidden_size: hidden size of an encoder that may differ from the decoder's. If given, ``q_proj`` and
    ``kv_proj``, with parts ``k`` and ``v``, replace qkv_proj, even if both sizes are equal. Other arguments: see
    SelfAttention.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        encoder_hidden_size: int | None = None,
        bias: bool = True,
        qkv_bias: bool | None = None,
        scale: float | None = None,
        softcap: float | None = None,
        context: LayerContext,
    ) -> None:
        super().__init__()
        self.head_dim = head_dim or hidden_size // num_heads
        inner, stacked_bias = num_heads * self.head_dim, bias if qkv_bias is None else qkv_bias
        self.qkv_proj = self.q_proj = self.kv_proj = None
        if encoder_hidden_size is None:
            self.qkv_proj = EncoderDecoderQKVParallelLinear(
                *(hidden_size, num_heads, self.head_dim),
                num_kv_heads=num_kv_heads,
                bias=stacked_bias,
                group=context.group,
            )
        else:
            context.group.share(num_heads, "heads")
            context.group.share(num_kv_heads or num_heads, "heads of keys and values")
            self.q_proj = ColumnParallelLinear(hidden_size, inner, stacked_bias, group=context.group)
            parts = dict.fromkeys("kv", (num_kv_heads or num_heads) * self.head_dim)
            self.kv_proj = ColumnParallelLinear(
                encoder_hidden_size, sum(parts.values()), stacked_bias, stacked=parts, group=context.group
            )
        self.out_proj = RowParallelLinear(inner, hidden_size, bias=bias, group=context.group)
        self.attn = Attention(self.head_dim, scale=scale, softcap=softcap, context=context)

    def forward(self, x: Tensor, kv_cache: Tensor, metadata: AttentionMetadata) -> Tensor:
        """x: [tokens, hidden]. kv_cache: this layer's. Returns x's shape."""
        query = self._queries(x)
        return self.out_proj(self.attn(query, None, None, kv_cache, metadata, AttentionType.ENCODER_DECODER))

    def keys_and_values(self, encoder_hidden: Tensor) -> tuple[Tensor, Tensor]:
        """encoder_hidden: [encoder_tokens, encoder's hidden]. Returns both, [encoder_tokens, kv_heads, head_dim]."""
        if self.qkv_proj is not None:
            return self.qkv_proj.keys_and_values(encoder_hidden)
        assert self.kv_proj is not None
        key, value = self.kv_proj(encoder_hidden).unflatten(-1, (-1, self.head_dim)).chunk(2, dim=1)
        return key, value

    def _queries(self, x: Tensor) -> Tensor:
        if self.qkv_proj is not None:
            return self.qkv_proj.query(x)
        assert self.q_proj is not None
        return self.q_proj(x).unflatten(-1, (-1, self.head_dim))
