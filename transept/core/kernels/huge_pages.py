"""Memory in huge pages, for tensors that are read sequentially: hardware prefetching stops at the end of a page.

Linux gives a program pages of 2 MB on request, if `transparent_hugepage/enabled` is "madvise" or "always". Activations
do not use them: they are allocated often, and the system clears each huge page first.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import Any

import torch
from torch import Tensor

HUGE_PAGE = 2 << 20  # bytes
MADV_HUGEPAGE = 14  # madvise(2)'s number


def empty_in_huge_pages(*size: int, dtype: torch.dtype, small_ends: bool = False) -> Tensor:
    """Return ``torch.empty`` of this size on the CPU, in huge pages as far as whole ones fit.

    small_ends: True to use small pages for the last huge page of each row of the first dimension, for rows that are
    written from both ends, and usually little at the last.
    """
    num_bytes = torch.Size(size).numel() * dtype.itemsize
    madvise = _madvise()
    if madvise is None or num_bytes < HUGE_PAGE:
        return torch.empty(size, dtype=dtype)
    memory = torch.empty(num_bytes + HUGE_PAGE, dtype=torch.uint8)  # unwritten pages take no memory
    begin = -memory.data_ptr() % HUGE_PAGE
    rows, left_out = (size[0], HUGE_PAGE) if small_ends else (1, 0)
    for row in range(rows):
        first, end = (-(-num_bytes * row // rows // HUGE_PAGE), num_bytes * (row + 1) // rows // HUGE_PAGE)
        length = (end - first) * HUGE_PAGE - left_out
        if length > 0:
            madvise(memory.data_ptr() + begin + first * HUGE_PAGE, length, MADV_HUGEPAGE)  # advice: may be refused
    return memory[begin : begin + num_bytes].view(dtype).view(size)


@cache
def _madvise() -> Any:
    """Return the C library's madvise; None on systems without such pages."""
    if sys.platform != "linux":
        return None
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return madvise
