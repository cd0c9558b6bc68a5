"""A layer's paged cache as a C struct, and a copy of many rows into it."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from transept.core.kernels.cpu.library import Int, KernelFunction, Pointer

_copy_rows = KernelFunction("transept_copy_rows", Pointer, Int, Int, Int, Int, Pointer)


class KVCacheStruct(ctypes.Structure):
    """KVCache of attention/kv_cache.h. Raises IndexError for a tensor of another shape or dtype."""

    _fields_ = (
        ("data", Pointer),
        ("slots", Int),
        ("kv_heads", Int),
        ("dim", Int),
        ("is_half", Int),
    )
    slots: int
    kv_heads: int
    dim: int

    def __init__(self, cache: Tensor) -> None:
        """cache: float32 or float16 on the CPU, [keys and values, slots, kv_heads, dim]; to outlive this object."""
        known = cache.dtype in (torch.float32, torch.float16)
        if cache.dim() != 4 or cache.shape[0] != 2 or not known or not cache.is_contiguous() or not cache.is_cpu:
            raise IndexError(f"a cache is [2, slots, kv_heads, dim] in float32 or float16, not {[*cache.shape]}")
        super().__init__(cache.data_ptr(), *cache.shape[1:], cache.dtype is torch.float16)


def copy_rows(x: Tensor, slots: Tensor) -> None:
    """Write keys or values to slots of a cache; numbers beyond float16's range become its largest number.

    x: float32 [tokens, kv_heads, dim] on the CPU. slots: float32 or float16 of the same shape, contiguous.
    Raises IndexError for other shapes and dtypes.
    """
    known = slots.dtype in (torch.float32, torch.float16)
    if x.shape != slots.shape or x.dim() != 3 or not known or not slots.is_contiguous():
        raise IndexError(f"{[*x.shape]} cannot be written to {[*slots.shape]} of {slots.dtype}")
    rows, size = len(x), x.shape[1] * x.shape[2]
    if x.stride()[1:] != (x.shape[2], 1):
        x = x.contiguous()
    _copy_rows(x.data_ptr(), rows, x.stride(0), size, slots.dtype is torch.float16, slots.data_ptr())
