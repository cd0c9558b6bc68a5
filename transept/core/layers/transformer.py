"""Encoder and decoder layers as most families have them: attention and a feed-forward network, each with its norm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any, cast

import torch
from torch import Tensor, nn

from transept.core.attention.attention import LayerContext
from transept.core.attention.backends.base import AttentionBackend
from transept.core.attention.biases import AttentionBias
from transept.core.attention.metadata import AttentionMetadata, AttentionType
from transept.core.attention.relative_keys import RelativeKeys
from transept.core.kernels.dispatch import (
    DECODER_LAYER,
    DecoderLayerKernel,
    DecoderLayersKernel,
    DecodeStep,
    Norm,
    Projection,
    runs_on,
)
from transept.core.layers.adapters import rows_in_use
from transept.core.layers.feed_forward import FeedForward
from transept.core.layers.layer_config import LayerConfig
from transept.core.layers.linear import Linear
from transept.core.layers.norm import RMSNorm, add_norm, norm_of, norm_of_sum


class EncoderLayer(nn.Module):
    """Self-attention ``self_attn`` and feed-forward ``ffn``, with norms such as ``ffn_norm`` and ``ffn_post_norm``."""

    def __init__(self, config: LayerConfig, context: LayerContext) -> None:
        super().__init__()
        self.pre_norm = config.pre_norm
        self.self_attn = config.self_attention(AttentionType.ENCODER, context)
        self.self_attn_norm = config.norm(config.hidden_size)
        self.self_attn_post_norm = config.post_norm()
        self.ffn = config.feed_forward(context)
        self.ffn_norm = config.norm(config.hidden_size)
        self.ffn_post_norm = config.post_norm()

    def forward(
        self,
        x: Tensor,
        metadata: AttentionMetadata,
        attention_bias: AttentionBias | RelativeKeys | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """x: [encoder_tokens, hidden]. positions: see SelfAttention. Returns x's shape."""
        given = (None, metadata, attention_bias, positions)
        if self.pre_norm:
            # No local variable holds attention's output: it would stay alive while the feed-forward layer runs.
            x, normed = add_norm(
                x,
                _normed(self.self_attn(norm_of(x, self.self_attn_norm), *given), self.self_attn_post_norm),
                self.ffn_norm,
                None if self.ffn_post_norm is not None else self.ffn.addend(x),
            )
            return _add_feed_forward(x, normed, self.ffn, self.ffn_post_norm)
        x = norm_of_sum(x, self.self_attn(x, *given), self.self_attn_norm)
        return norm_of_sum(x, self.ffn(x), self.ffn_norm)


class EncoderLayers(nn.ModuleList):
    """The layers of an encoder, called one after the other."""

    @classmethod
    def of(cls, config: Any, context: LayerContext, **options: Any) -> EncoderLayers:
        """Make the layers of an encoder from a config with BART's names. options: see `LayerConfig.of_side`."""
        layer = LayerConfig.of_side(config, "encoder", **options)
        return cls(EncoderLayer(layer, context) for _ in range(config.encoder_layers))

    def forward(
        self,
        x: Tensor,
        metadata: AttentionMetadata,
        attention_bias: AttentionBias | RelativeKeys | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """Call all layers, see EncoderLayer.forward. attention_bias: shared by all layers."""
        for layer in self:
            x = layer(x, metadata, attention_bias, positions)
        return x


class DecoderLayer(nn.Module):
    """``self_attn``, ``cross_attn`` and ``ffn``, with norms as in an EncoderLayer."""

    def __init__(self, config: LayerConfig, context: LayerContext) -> None:
        super().__init__()
        self.pre_norm = config.pre_norm
        self.self_attn = config.self_attention(AttentionType.DECODER, context)
        self.self_attn_norm = config.norm(config.hidden_size)
        self.self_attn_post_norm = config.post_norm()
        self.cross_attn = config.cross_attention(context)
        self.cross_attn_norm = config.norm(config.hidden_size)
        self.cross_attn_post_norm = config.post_norm()
        self.ffn = config.feed_forward(context)
        self.ffn_norm = config.norm(config.hidden_size)
        self.ffn_post_norm = config.post_norm()
        self.backend = context.attention_backend
        self._in_one_process = context.group.size == 1

    @cached_property
    def kernel(self) -> DecoderLayerKernel | None:
        """The layer as a kernel, for steps with one token for each sequence; None if the kernel cannot compute it."""
        if not self._in_one_process:  # it would need three all-reduces inside the kernel
            return None
        self_attn, cross_attn = self.self_attn, self.cross_attn
        if self_attn.rotary is not None or self_attn.attn.window is not None or self.ffn_post_norm is not None:
            return None
        if self_attn.attn.softcap is not None or cross_attn.attn.softcap is not None:
            return None
        norms = (self.self_attn_norm, self.cross_attn_norm, self.ffn_norm)
        linears = [module for module in self.modules() if isinstance(module, Linear)]
        if any(module.projection() is None for module in linears):
            return None
        if not all(map(_is_served, norms)):
            return None
        num_queries = None if cross_attn.qkv_proj is None else cross_attn.qkv_proj.q_size
        return DECODER_LAYER.only(
            self_norm=_norm(norms[0]),
            qkv=_projection(self_attn.qkv_proj),
            self_out=_projection(self_attn.out_proj),
            cross_norm=_norm(norms[1]),
            query=_projection(cross_attn.qkv_proj or cross_attn.q_proj, num_queries),
            cross_out=_projection(cross_attn.out_proj),
            ffn_norm=_norm(norms[2]),
            fc1=_projection(self.ffn.fc1),
            gate=None if self.ffn.gate is None else _projection(self.ffn.gate),
            fc2=_projection(self.ffn.fc2),
            self_scale=self_attn.attn.scale,
            cross_scale=cross_attn.attn.scale,
            epsilon=cast(float, norms[0].eps),
            pre_norm=self.pre_norm,
            activation=self.ffn.activation_name,
        )

    def forward(
        self,
        x: Tensor,
        kv_cache: Tensor,
        metadata: AttentionMetadata,
        attention_bias: AttentionBias | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        """x: [tokens, hidden]. kv_cache: this layer's. positions: see SelfAttention. Returns x's shape."""
        own, cross = (kv_cache, metadata, attention_bias, positions), (kv_cache, metadata)
        if self.pre_norm:
            attended = _normed(self.self_attn(norm_of(x, self.self_attn_norm), *own), self.self_attn_post_norm)
            x, normed = add_norm(x, attended, self.cross_attn_norm)
            x, normed = add_norm(
                x,
                _normed(self.cross_attn(normed, *cross), self.cross_attn_post_norm),
                self.ffn_norm,
                None if self.ffn_post_norm is not None else self.ffn.addend(x),
            )
            return _add_feed_forward(x, normed, self.ffn, self.ffn_post_norm)
        x = norm_of_sum(x, self.self_attn(x, *own), self.self_attn_norm)
        x = norm_of_sum(x, self.cross_attn(x, *cross), self.cross_attn_norm)
        return norm_of_sum(x, self.ffn(x), self.ffn_norm)


class DecoderLayers(nn.ModuleList):
    """The layers of a decoder, called one after the other.

    On a CPU, if every row of a step is a span (see DecodeRows), one kernel call computes consecutive layers with the
    same bias. The call for the last layer also computes the norm that follows.
    """

    @classmethod
    def of(cls, config: Any, context: LayerContext, **options: Any) -> DecoderLayers:
        """Make the layers of a decoder from a config with BART's names. options: see `LayerConfig.of_side`."""
        return cls.alike(LayerConfig.of_side(config, "decoder", **options), config.decoder_layers, context)

    @classmethod
    def alike(cls, layer: LayerConfig, count: int, context: LayerContext) -> DecoderLayers:
        """Make `count` layers with the same settings."""
        return cls(DecoderLayer(layer, context) for _ in range(count))

    @cached_property
    def _kernels(self) -> list[DecoderLayerKernel | None]:
        """Each layer as a kernel; None for a layer of another class, and for one that the kernel cannot compute."""
        return [layer.kernel if type(layer) is DecoderLayer else None for layer in self]

    @cached_property
    def _backend(self) -> AttentionBackend | None:
        """The attention backend of the layers that have a kernel; None if no layer has one."""
        layers = zip(self, self._kernels, strict=True)
        return next((layer.backend for layer, kernel in layers if isinstance(layer, DecoderLayer) and kernel), None)

    @cached_property
    def _calls(self) -> dict[tuple[int, int, nn.Module | None], tuple[DecoderLayersKernel, nn.Module | None]]:
        """Cache of `_call`."""
        return {}

    def _call(self, start: int, stop: int, norm: Any) -> tuple[DecoderLayersKernel, nn.Module | None]:
        """Return a kernel for some layers and the norm after them, and the norm if the kernel does not include it."""
        key = start, stop, norm
        if key not in self._calls:
            kernels = [kernel for kernel in self._kernels[start:stop] if kernel is not None]
            served = norm is not None and _is_served(norm)
            last = (_norm(norm), norm.eps) if served else ()
            self._calls[key] = DecoderLayersKernel(kernels, *last), None if served else norm
        return self._calls[key]

    def forward(
        self,
        x: Tensor,
        kv_caches: list[Tensor],
        metadata: AttentionMetadata,
        attention_biases: Sequence[AttentionBias | None] | None = None,
        positions: Tensor | None = None,
        last_norm: nn.Module | None = None,
    ) -> Tensor:
        """Call all layers, then `last_norm`. x: [tokens, hidden]. kv_caches, attention_biases: one for each layer.

        positions: see SelfAttention. last_norm: applied to the last layer's output. Returns x's shape.
        """
        biases = [None] * len(self) if attention_biases is None else attention_biases
        layers = [*zip(self, biases, kv_caches, strict=True)]
        for start, stop, step in self._parts(x, metadata, biases):
            if step is None:
                for layer, bias, kv_cache in layers[start:stop]:
                    x = layer(x, kv_cache, metadata, bias, positions)
            else:
                kernel, norm = self._call(start, stop, last_norm if stop == len(self) else None)
                x = kernel(x, kv_caches[start:stop], step)
                last_norm = norm if stop == len(self) else last_norm
        return _normed(x, last_norm)

    def _parts(
        self, x: Tensor, metadata: AttentionMetadata, biases: Sequence[AttentionBias | None]
    ) -> Iterator[tuple[int, int, DecodeStep | None]]:
        """Yield ranges of layers (start, stop, step). step: for one kernel call; None: call the layers one by one."""
        if not runs_on(x) or self._backend is None:
            yield 0, len(self), None
            return
        alike = groupby(range(len(self)), lambda index: (self._kernels[index] is not None, id(biases[index])))
        for (is_served, _), group in alike:
            indices = [*group]
            step = self._backend.decode_step(metadata, biases[indices[0]]) if is_served else None
            if step is not None:
                rows = rows_in_use()
                step.use_adapters(None if rows is None else rows.tiles(len(x)))
            yield indices[0], indices[-1] + 1, step


def _normed(x: Tensor, norm: nn.Module | None) -> Tensor:
    return x if norm is None else norm_of(x, norm)


def _add_feed_forward(x: Tensor, normed: Tensor, ffn: FeedForward, post_norm: nn.Module | None) -> Tensor:
    """Return ``x + ffn(normed)``, or ``x + post_norm(ffn(normed))``. May overwrite x, [tokens, hidden]."""
    return ffn.add_to(x, normed) if post_norm is None else x + norm_of(ffn(normed), post_norm)


def _projection(linear: Linear | None, outputs: int | None = None) -> Projection:
    assert linear is not None
    projection = linear.projection(outputs)
    assert projection is not None
    return projection


def _is_served(norm: nn.Module) -> bool:
    """Return True if a kernel computes the norm. Not for subclasses, which may override `forward`."""
    known = type(norm) in (nn.LayerNorm, RMSNorm)
    return known and all(part.dtype is torch.float32 and part.is_cpu for part in norm.parameters())


def _norm(norm: Any) -> Norm:
    """Return the norm's weight and bias. An RMSNorm, which subtracts no mean, has no bias."""
    if isinstance(norm, RMSNorm):
        return Norm(norm.weight + norm.weight_offset if norm.weight_offset else norm.weight, None)
    weight = torch.ones(norm.normalized_shape) if norm.weight is None else norm.weight
    return Norm(weight, torch.zeros(norm.normalized_shape) if norm.bias is None else norm.bias)
