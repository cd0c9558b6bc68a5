"""Uniform random numbers that depend on a key and a place only, by SplitMix64 (Steele, Lea and Flood 2014).

Called by `transept.core.execution.noise`, which makes the same numbers on other devices.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from transept.core.kernels.cpu.library import Int, KernelFunction, Pointer

_Keys = npt.NDArray[np.uint64]

_uniform = KernelFunction("transept_uniform", Pointer, Int, Int, Pointer)


def uniform(keys: _Keys, count: int) -> Tensor:
    """Return numbers between 0 and 1, float32 [keys, count]: for each key, the places from 1 on."""
    keys, out = np.ascontiguousarray(keys, np.uint64), torch.empty(len(keys), count, dtype=torch.float32)
    _uniform(keys.ctypes.data, len(keys), count, out.data_ptr())
    return out
