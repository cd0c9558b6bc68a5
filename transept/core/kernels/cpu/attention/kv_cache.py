"""A layer's paged cache as kernels read it."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from transept.core.kernels.cpu.library import Int, Pointer


class KVCacheStruct(ctypes.Structure):
    """As in attention/kv_cache.h. Raises IndexError for a tensor that is no cache."""

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
