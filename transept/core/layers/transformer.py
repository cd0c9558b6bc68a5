"""Encoder and decoder layers as most families have them: attention and a feed-forward network, each with its norm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any, cast

import torch
from torch import Tensor, nn

from transept.core.attention.biases import AttentionBias
from transept.core.attention.layer import LayerContext
from transept.core.attention.metadata import AttentionMetadata, AttentionType
from transept.core.kernels.dispatch import (
    DECODER_LAYER,
    DecoderLayerKernel,
    Norm,
    Projection,
    WeightPanels,
    runs_on,
)
from transept.core.layers.attention import CrossAttention, SelfAttention
from transept.core.layers.feed_forward import FeedForward
from transept.core.layers.linear import Linear
from transept.core.layers.norm import RMSNorm, add_norm, norm_of, norm_of_sum
from transept.errors import CheckpointError


@dataclass(frozen=True)
class LayerConfig:
    """What the layers of one side of a model have in common.

    intermediate_size, activation, gated: see FeedForward. pre_norm: ``x + f(norm(x))``, else ``norm(x + f(x))``.
    norm: makes a norm for the hidden size. num_kv_heads: see SelfAttention. head_dim: default hidden_size / num_heads.
    scale: of attention, default 1/√head_dim. bias: whether the linear layers have one. encoder_hidden_size: of
    cross-attention, see CrossAttention.

    Raises CheckpointError for a size that is no integer of at least 1.
    """

    hidden_size: int
    num_heads: int
    intermediate_size: int
    activation: str
    pre_norm: bool
    norm: Callable[[int], nn.Module] = nn.LayerNorm
    gated: bool = False
    num_kv_heads: int | None = None
    head_dim: int | None = None
    scale: float | None = None
    bias: bool = True
    encoder_hidden_size: int | None = None

    def __post_init__(self) -> None:
        optional = ("num_kv_heads", "head_dim", "encoder_hidden_size")
        for name in ("hidden_size", "num_heads", "intermediate_size", *optional):
            size = getattr(self, name)
            if not (size is None and name in optional) and (
                isinstance(size, bool) or not isinstance(size, Integral) or size < 1
            ):
                raise CheckpointError(f"{name} of a layer must be an integer of at least 1, not {size!r}")

    def self_attention(self, attn_type: AttentionType, context: LayerContext) -> SelfAttention:
        """A self-attention of such a layer."""
        return SelfAttention(self.hidden_size, self.num_heads, attn_type, context=context, **self._attention_options())

    def cross_attention(self, context: LayerContext) -> CrossAttention:
        """A cross-attention of such a layer."""
        options = {**self._attention_options(), "encoder_hidden_size": self.encoder_hidden_size}
        return CrossAttention(self.hidden_size, self.num_heads, context=context, **options)

    def feed_forward(self, context: LayerContext) -> FeedForward:
        """A feed-forward network of such a layer."""
        return FeedForward(
            self.hidden_size,
            self.intermediate_size,
            self.activation,
            gated=self.gated,
            bias=self.bias,
            group=context.group,
        )

    def _attention_options(self) -> dict[str, Any]:
        return {
            "num_kv_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "scale": self.scale,
            "bias": self.bias,
        }


class EncoderLayer(nn.Module):
    """``self_attn``, ``ffn``, each with its norm."""

    def __init__(self, config: LayerConfig, context: LayerContext) -> None:
        super().__init__()
        self.pre_norm = config.pre_norm
        self.self_attn = config.self_attention(AttentionType.ENCODER, context)
        self.self_attn_norm = config.norm(config.hidden_size)
        self.ffn = config.feed_forward(context)
        self.ffn_norm = config.norm(config.hidden_size)

    def forward(self, x: Tensor, metadata: AttentionMetadata, attention_bias: AttentionBias | None = None) -> Tensor:
        """x: [encoder_tokens, hidden]. Returns the same shape."""
        if self.pre_norm:
            # Attention's output is given no name: it would be there as long as the feed-forward layer runs.
            x, normed = add_norm(
                x,
                self.self_attn(norm_of(x, self.self_attn_norm), None, metadata, attention_bias),
                self.ffn_norm,
                self.ffn.addend(x),
            )
            return self.ffn.add_to(x, normed)
        x = norm_of_sum(x, self.self_attn(x, None, metadata, attention_bias), self.self_attn_norm)
        return norm_of_sum(x, self.ffn(x), self.ffn_norm)


class DecoderLayer(nn.Module):
    """``self_attn``, ``cross_attn``, ``ffn``, each with its norm."""

    def __init__(self, config: LayerConfig, context: LayerContext) -> None:
        super().__init__()
        self.pre_norm = config.pre_norm
        self.self_attn = config.self_attention(AttentionType.DECODER, context)
        self.self_attn_norm = config.norm(config.hidden_size)
        self.cross_attn = config.cross_attention(context)
        self.cross_attn_norm = config.norm(config.hidden_size)
        self.ffn = config.feed_forward(context)
        self.ffn_norm = config.norm(config.hidden_size)
        self.backend = context.attention_backend
        self._in_one_process = context.group.size == 1

    @cached_property
    def _kernel(self) -> DecoderLayerKernel | None:
        """The layer as one kernel, for steps of one token a sequence; None where the kernel does not serve it."""
        if not self._in_one_process:  # it would have to stop for the sums
            return None
        norms = (self.self_attn_norm, self.cross_attn_norm, self.ffn_norm)
        linears = [module for module in self.modules() if isinstance(module, Linear)]
        if not all(module.packed and isinstance(module.packed.panels, WeightPanels) for module in linears):
            return None
        if any(type(norm) not in (nn.LayerNorm, RMSNorm) for norm in norms):  # what is derived may compute otherwise
            return None
        if any(parameter.dtype is not torch.float32 for norm in norms for parameter in norm.parameters()):
            return None
        return DECODER_LAYER.only(
            self_norm=_norm(norms[0]),
            qkv=_projection(self.self_attn.qkv_proj),
            self_out=_projection(self.self_attn.out_proj),
            cross_norm=_norm(norms[1]),
            query=_projection(*self.cross_attn.qkv_proj.query),
            cross_out=_projection(self.cross_attn.out_proj),
            ffn_norm=_norm(norms[2]),
            fc1=_projection(self.ffn.fc1),
            gate=None if self.ffn.gate is None else _projection(self.ffn.gate),
            fc2=_projection(self.ffn.fc2),
            self_scale=self.self_attn.attn.scale,
            cross_scale=self.cross_attn.attn.scale,
            epsilon=cast(float, norms[0].eps),
            pre_norm=self.pre_norm,
            activation=self.ffn.activation_name,
        )

    def forward(
        self,
        x: Tensor,
        encoder_hidden: Tensor | None,
        kv_cache: Tensor,
        metadata: AttentionMetadata,
        attention_bias: AttentionBias | None = None,
    ) -> Tensor:
        """x: [tokens, hidden], encoder_hidden: [encoder_tokens, encoder_hidden] of prefills. Returns x's shape."""
        if runs_on(x) and self._kernel is not None:
            step = self.backend.decode_step(metadata, attention_bias)
            if step is not None:
                if encoder_hidden is not None:
                    new = self.cross_attn.qkv_proj.keys_and_values(encoder_hidden)
                    self.backend.write_cross(*new, kv_cache, metadata)
                return self._kernel(x, kv_cache.flatten(1, 2), step)
        cross = (encoder_hidden, kv_cache, metadata)
        if self.pre_norm:
            attended = self.self_attn(norm_of(x, self.self_attn_norm), kv_cache, metadata, attention_bias)
            x, normed = add_norm(x, attended, self.cross_attn_norm)
            x, normed = add_norm(x, self.cross_attn(normed, *cross), self.ffn_norm, self.ffn.addend(x))
            return self.ffn.add_to(x, normed)
        x = norm_of_sum(x, self.self_attn(x, kv_cache, metadata, attention_bias), self.self_attn_norm)
        x = norm_of_sum(x, self.cross_attn(x, *cross), self.cross_attn_norm)
        return norm_of_sum(x, self.ffn(x), self.ffn_norm)


def _projection(linear: Linear, outputs: int | None = None) -> Projection:
    """Its weight and bias, or those of the first outputs."""
    assert linear.packed is not None
    panels, bias = linear.packed.panels, None if linear.bias is None else linear.bias[:outputs]
    assert isinstance(panels, WeightPanels)
    return Projection(panels.outputs(0, panels.num_outputs if outputs is None else outputs), bias)


def _norm(norm: Any) -> Norm:
    """Its weight and bias; without a mean to subtract there is no bias."""
    if isinstance(norm, RMSNorm):
        return Norm(norm.weight, None)
    weight = torch.ones(norm.normalized_shape) if norm.weight is None else norm.weight
    return Norm(weight, torch.zeros(norm.normalized_shape) if norm.bias is None else norm.bias)
