"""A whole decoder layer for a step in which every sequence has one token, in one call.

Called by `transept.core.layers.transformer.DecoderLayer`. The arithmetic of such a step is over in microseconds; a call
from Python for each norm, product and sum, with the caches full of weights, costs as much again.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch
from torch import Tensor

from transept.core.kernels.activations import ACTIVATIONS
from transept.core.kernels.cpu.attention.kv_cache import KVCacheStruct
from transept.core.kernels.cpu.attention.paged_attention import NO_BIAS, BiasStruct, DistanceBias, PagedWork, WorkStruct
from transept.core.kernels.cpu.gemm.panels import WeightPanels
from transept.core.kernels.cpu.library import Float, Int, Pointer, bind

_decoder_layer = bind("transept_decoder_layer", Pointer, Int, Pointer, Pointer, Pointer)


class _StepStruct(ctypes.Structure):
    """DecodeStep of fused/decoder_layer.cpp."""

    _fields_ = (
        ("slots", Pointer),
        ("self_keys", WorkStruct),
        ("cross_keys", WorkStruct),
        ("bias", BiasStruct),
    )


class DecodeStep:
    """What the layers of a step share.

    slots: int64 [rows], where each row's key and value go. self_keys, cross_keys: what the rows attend to. bias: of
    self-attention. Raises IndexError for a negative slot.
    """

    def __init__(self, slots: Tensor, self_keys: PagedWork, cross_keys: PagedWork, bias: DistanceBias) -> None:
        self.slots, self.self_keys, self.cross_keys, self.bias = slots.contiguous(), self_keys, cross_keys, bias
        numbers = self.slots.tolist()
        if min(numbers) < 0:
            raise IndexError(f"a key is to be written to slot {min(numbers)}")
        self.num_slots = max(numbers) + 1
        self.struct = _StepStruct(self.slots.data_ptr(), self_keys.struct, cross_keys.struct, bias.struct)
        self._checked = (-1, -1, -1)

    def check(self, num_rows: int, cache: KVCacheStruct, num_heads: int) -> None:
        """Raise IndexError where the step reaches beyond the rows, the cache or the heads of a layer."""
        sizes = (num_rows, cache.slots, num_heads)
        if sizes == self._checked:  # most layers are alike
            return
        self.self_keys.check(num_rows, cache.slots, self.bias)
        self.cross_keys.check(num_rows, cache.slots, NO_BIAS)
        self.bias.check(num_heads)
        if self.num_slots > cache.slots or len(self.slots) != num_rows:
            raise IndexError(
                f"{num_rows} rows have {len(self.slots)} slots, up to {self.num_slots} of a cache of {cache.slots}"
            )
        self._checked = sizes


@dataclass(frozen=True)
class Projection:
    """A packed weight [out, in] and its bias [out], None for none."""

    weight: WeightPanels
    bias: Tensor | None


@dataclass(frozen=True)
class Norm:
    """A norm's weight [hidden] and bias, None for an RMS norm."""

    weight: Tensor
    bias: Tensor | None


class _Pair(ctypes.Structure):
    """Linear and Norm of fused/decoder_layer.cpp."""

    _fields_ = (("weight", Pointer), ("bias", Pointer))


_PARTS = (
    *("self_norm", "qkv", "self_out"),
    *("cross_norm", "query", "cross_out"),
    *("ffn_norm", "fc1", "gate", "fc2"),
)


class _LayerStruct(ctypes.Structure):
    """DecoderLayer of fused/decoder_layer.cpp."""

    _fields_ = (
        *((name, _Pair) for name in _PARTS),
        ("self_scale", Float),
        ("cross_scale", Float),
        ("epsilon", Float),
        ("pre_norm", ctypes.c_int32),
        ("activation", Int),
    )


class DecoderLayerKernel:
    """A layer's weights and settings.

    qkv: queries, keys and values of self-attention. query: of cross-attention alone. gate: multiplied with the
    activated fc1. pre_norm: ``x + f(norm(x))``, else ``norm(x + f(x))``. activation: one of ACTIVATIONS. Raises
    IndexError where the sizes do not belong together.
    """

    def __init__(
        self,
        *,
        self_norm: Norm,
        qkv: Projection,
        self_out: Projection,
        cross_norm: Norm,
        query: Projection,
        cross_out: Projection,
        ffn_norm: Norm,
        fc1: Projection,
        gate: Projection | None,
        fc2: Projection,
        self_scale: float,
        cross_scale: float,
        epsilon: float,
        pre_norm: bool,
        activation: str,
    ) -> None:
        hidden, attended, inner = len(self_norm.weight), query.weight.num_outputs, fc1.weight.num_outputs
        self._hidden, self._attended, self._qkv = hidden, attended, qkv.weight.num_outputs
        expected = (
            *((qkv, self._qkv, hidden), (self_out, hidden, attended), (query, attended, hidden)),
            *((cross_out, hidden, attended), (fc1, inner, hidden), (fc2, hidden, inner)),
            *(() if gate is None else ((gate, inner, hidden),)),
        )
        for projection, num_out, num_in in expected:
            weight, bias = projection.weight, projection.bias
            fits = (weight.num_outputs, weight.num_inputs) == (num_out, num_in)
            if not fits or (bias is not None and len(bias) != num_out):
                found = [weight.num_outputs, weight.num_inputs]
                raise IndexError(f"a weight of a decoder layer is {found} instead of {[num_out, num_in]}")
        if any(len(part) != hidden for norm in (self_norm, cross_norm, ffn_norm) for part in _tensors(norm)):
            raise IndexError(f"a norm of a decoder layer is not {hidden} wide")
        parts = (self_norm, qkv, self_out, cross_norm, query, cross_out, ffn_norm, fc1, gate, fc2)
        self._kept = [_contiguous(part) for part in parts]  # what the kernel reads
        self._cache: Tensor | None = None  # of the last call, and how kernels read it
        self._keys: KVCacheStruct | None = None
        self._struct = _LayerStruct(
            *(_pair(part) for part in self._kept),
            *(self_scale, cross_scale, epsilon, pre_norm, ACTIVATIONS[activation].number),
        )

    def __call__(self, x: Tensor, cache: Tensor, step: DecodeStep) -> Tensor:
        """x: float32 [rows, hidden]. cache: [2, blocks, block_size, kv_heads, dim], whose slots are read and written.

        Returns x's shape. Raises IndexError where the step reaches beyond x or the cache, or these are not what the
        weights are for.
        """
        keys = self._keys_of(cache)
        step.check(len(x), keys, self._attended // keys.dim)
        widths, expected = (x.shape[1], self._qkv), (self._hidden, self._attended + 2 * keys.kv_heads * keys.dim)
        if widths != expected or self._attended % (keys.kv_heads * keys.dim):
            raise IndexError(
                f"hidden states and their queries, keys and values are {widths} wide instead of {expected}"
            )
        out = x.clone(memory_format=torch.contiguous_format)
        _decoder_layer(
            out.data_ptr(),
            len(out),
            ctypes.addressof(keys),
            ctypes.addressof(step.struct),
            ctypes.addressof(self._struct),
        )
        return out

    def _keys_of(self, cache: Tensor) -> KVCacheStruct:
        """A cache as kernels read it, made once."""
        if self._keys is None or self._cache is not cache:
            self._keys, self._cache = KVCacheStruct(cache.flatten(1, 2)), cache
        return self._keys


def _tensors(norm: Norm) -> list[Tensor]:
    return [part for part in (norm.weight, norm.bias) if part is not None]


def _contiguous(part: Norm | Projection | None) -> Norm | Projection | None:
    if part is None:
        return None
    bias = None if part.bias is None else part.bias.detach().contiguous()
    if isinstance(part, Norm):
        return Norm(part.weight.detach().contiguous(), bias)
    return Projection(part.weight, bias)


def _pair(part: Norm | Projection | None) -> _Pair:
    if part is None:
        return _Pair(None, None)
    address = part.weight.data_ptr() if isinstance(part, Norm) else part.weight.address
    return _Pair(address, None if part.bias is None else part.bias.data_ptr())
