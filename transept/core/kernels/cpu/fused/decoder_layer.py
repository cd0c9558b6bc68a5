"""Whole decoder layers for a step in which every sequence has one token, in one call.

Called by `transept.core.layers.transformer`. The arithmetic of such a step takes microseconds; calling each norm,
product and sum from Python, with caches full of weights, would take as long again.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from operator import is_

import torch
from torch import Tensor

from transept.core.kernels.activations import ACTIVATIONS
from transept.core.kernels.cpu.attention.kv_cache import KVCacheStruct
from transept.core.kernels.cpu.attention.paged_attention import NO_BIAS, BiasStruct, DistanceBias, PagedWork, WorkStruct
from transept.core.kernels.cpu.gemm.low_rank import LowRankTable, RowsStruct, RowTiles
from transept.core.kernels.cpu.gemm.panels import WeightPanels
from transept.core.kernels.cpu.library import Float, Int, KernelFunction, Pointer, pointer

_decoder_layers = KernelFunction("transept_decoder_layers", Pointer, Int, Int, Pointer, Int, *[Pointer] * 4)


class _StepStruct(ctypes.Structure):
    """DecodeStep of fused/decoder_layer.cpp."""

    _fields_ = (
        ("slots", Pointer),
        ("self_keys", WorkStruct),
        ("cross_keys", WorkStruct),
        ("bias", BiasStruct),
        ("adapters", RowsStruct),
    )


class DecodeStep:
    """The part of a step that all layers share.

    slots: int64 [rows], where each row's key and value are written. self_keys, cross_keys: the keys that rows attend
    to. bias: of self-attention.
    """

    def __init__(self, slots: Tensor, self_keys: PagedWork, cross_keys: PagedWork, bias: DistanceBias) -> None:
        self.slots, self.self_keys, self.cross_keys, self.bias = slots.contiguous(), self_keys, cross_keys, bias
        self.struct = _StepStruct(self.slots.data_ptr(), self_keys.struct, cross_keys.struct, bias.struct)
        self.address = ctypes.addressof(self.struct)
        self._adapters: RowTiles | None = None
        self._checked = (-1, -1, -1)

    def use_adapters(self, tiles: RowTiles | None) -> None:
        """Add the updates of these rows' adapters; None: no adapters."""
        if tiles is not self._adapters:
            self._adapters, self._checked = tiles, (-1, -1, -1)
            self.struct.adapters = RowsStruct() if tiles is None else tiles.struct

    def check(self, num_rows: int, cache: KVCacheStruct, num_heads: int) -> None:
        """Raise IndexError if the step reaches beyond the rows, the cache or the heads of a layer."""
        sizes = (num_rows, cache.slots, num_heads)
        if sizes == self._checked:  # most layers are alike
            return
        self.self_keys.check(num_rows, cache.slots, self.bias)
        self.cross_keys.check(num_rows, cache.slots, NO_BIAS)
        self.bias.check(num_heads)
        if len(self.slots) != num_rows:
            raise IndexError(f"{num_rows} rows have {len(self.slots)} slots")
        if self._adapters is not None and self._adapters.num_rows != num_rows:
            raise IndexError(f"{num_rows} rows have adapters of {self._adapters.num_rows}")
        self._checked = sizes


class NormStruct(ctypes.Structure):
    """Norm of fused/decoder_layer.cpp."""

    _fields_ = (("weight", Pointer), ("bias", Pointer))


class LinearStruct(ctypes.Structure):
    """Linear of fused/linear.h."""

    _fields_ = (("weight", Pointer), ("bias", Pointer), ("adapters", Pointer))


class Projection:
    """A packed weight [out, in], its bias [out] and the updates of adapters, None for none.

    The updates may be of more outputs than the weight has. struct: as the kernel reads them.
    """

    def __init__(self, weight: WeightPanels, bias: Tensor | None, adapters: LowRankTable | None = None) -> None:
        self.weight, self.bias = weight, None if bias is None else bias.detach().contiguous()
        self.adapters = adapters
        if adapters is not None and (adapters.inputs != weight.num_inputs or adapters.outputs < weight.num_outputs):
            sizes = [adapters.outputs, adapters.inputs], [weight.num_outputs, weight.num_inputs]
            raise IndexError(f"adapters of a layer of {sizes[0]} do not fit a weight of {sizes[1]}")
        self.struct = LinearStruct(weight.address, pointer(self.bias), None if adapters is None else adapters.address)


class Norm:
    """A norm's weight [hidden] and bias, None for an RMS norm. struct: as the kernel reads them."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight = weight.detach().contiguous()
        self.bias = None if bias is None else bias.detach().contiguous()
        self.struct = NormStruct(self.weight.data_ptr(), pointer(self.bias))

    def fits(self, hidden: int) -> bool:
        """Return True if the norm is for hidden states of this width."""
        return len(self.weight) == hidden and (self.bias is None or len(self.bias) == hidden)


_PARTS = (
    *("self_norm", "qkv", "self_out"),
    *("cross_norm", "query", "cross_out"),
    *("ffn_norm", "fc1", "gate", "fc2"),
)


class _LastNormStruct(ctypes.Structure):
    """LastNorm of fused/decoder_layer.cpp."""

    _fields_ = (("norm", NormStruct), ("epsilon", Float))


class _LayerStruct(ctypes.Structure):
    """DecoderLayer of fused/decoder_layer.cpp."""

    _fields_ = (
        *((name, NormStruct if name.endswith("norm") else LinearStruct) for name in _PARTS),
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
        self.hidden, self._attended, self._qkv = hidden, attended, qkv.weight.num_outputs
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
        if not all(norm.fits(hidden) for norm in (self_norm, cross_norm, ffn_norm)):
            raise IndexError(f"a norm of a decoder layer is not {hidden} wide")
        parts = (self_norm, qkv, self_out, cross_norm, query, cross_out, ffn_norm, fc1, gate, fc2)
        self._kept = parts  # the kernel reads their memory
        self._struct = _LayerStruct(
            *(LinearStruct() if part is None else part.struct for part in parts),
            *(self_scale, cross_scale, epsilon, pre_norm, ACTIVATIONS[activation].number),
        )
        self.address = ctypes.addressof(self._struct)

    def check_cache(self, cache: KVCacheStruct) -> None:
        """Raise IndexError for a cache that does not fit the weights."""
        expected = self._attended + 2 * cache.kv_heads * cache.dim
        if self._qkv != expected or self._attended % (cache.kv_heads * cache.dim):
            raise IndexError(f"queries, keys and values are {self._qkv} wide instead of {expected}")

    def check_step(self, rows: int, width: int, cache: KVCacheStruct, step: DecodeStep) -> None:
        """Raise IndexError if a step reaches beyond rows of this width, or the cache."""
        if width != self.hidden:
            raise IndexError(f"hidden states are {width} wide instead of {self.hidden}")
        step.check(rows, cache, self._attended // cache.dim)


class DecoderLayersKernel:
    """Layers that are computed one after the other, then a norm, if one is given, with its epsilon.

    Raises IndexError for a norm of another width than a layer's.
    """

    def __init__(self, layers: Sequence[DecoderLayerKernel], norm: Norm | None = None, epsilon: float = 0.0) -> None:
        self._layers, self._norm, self._norm_address = layers, norm, None  # the kernel reads the norm's memory
        if norm is not None:
            if not norm.fits(layers[-1].hidden):
                raise IndexError(f"the last norm is {len(norm.weight)} wide instead of {layers[-1].hidden}")
            self._norm_struct = _LastNormStruct(norm.struct, epsilon)
            self._norm_address = ctypes.addressof(self._norm_struct)
        self._addresses = array("Q", [layer.address for layer in layers])
        self._caches: list[Tensor] = []  # of the last call, which stay the same from step to step
        self._keys: list[KVCacheStruct] = []  # how kernels read them
        self._key_addresses = array("Q")

    def __call__(self, x: Tensor, caches: Sequence[Tensor], step: DecodeStep) -> Tensor:
        """x: float32 [rows, hidden]. caches: of each layer [2, blocks, block_size, kv_heads, dim], read and written.

        Returns x's shape. Raises IndexError if the step reaches beyond x or a cache, or these do not fit the weights.
        """
        if len(caches) != len(self._caches) or not all(map(is_, caches, self._caches)):
            self._take(caches)
        rows, width = x.shape
        for layer, keys in zip(self._layers, self._keys, strict=True):
            layer.check_step(rows, width, keys, step)
        x, out = x.contiguous(), torch.empty(rows, width)
        (layers, count), (keys_of_all, _) = self._addresses.buffer_info(), self._key_addresses.buffer_info()
        row = _decoder_layers(
            *(x.data_ptr(), rows, width, step.address, count, layers, keys_of_all, self._norm_address, out.data_ptr())
        )
        if row >= 0:
            slots, most = step.slots.tolist(), min(keys.slots for keys in self._keys)
            raise IndexError(f"a key is to be written to slot {slots[row]} of a cache of {most}")
        return out

    def _take(self, caches: Sequence[Tensor]) -> None:
        keys = [KVCacheStruct(cache.view(2, -1, *cache.shape[3:])) for cache in caches]
        for layer, each in zip(self._layers, keys, strict=True):
            layer.check_cache(each)
        self._caches = []  # until all structs exist: an interruption may come at any line
        self._keys, self._key_addresses = keys, array("Q", map(ctypes.addressof, keys))
        self._caches = [*caches]
