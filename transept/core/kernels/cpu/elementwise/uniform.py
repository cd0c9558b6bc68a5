"""Uniform random numbers that depend on a key and a place alone, by SplitMix64 (Steele, Lea and Flood 2014).

Called by `transept.core.execution.noise`, which makes the same numbers on other devices.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from transept.core.kernels.cpu.library import Int, Pointer, bind

STEP = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
LEAST, MOST = 2.0**-64, 1 - 2.0**-24  # neither 0 nor 1, even after rounding to float32

Keys = npt.NDArray[np.uint64]

_uniform = bind("transept_uniform", Pointer, Int, Int, Pointer)


def mixed(bits: Keys) -> Keys:
    """Integers that look random, one for each."""
    bits = (bits ^ (bits >> np.uint64(30))) * FIRST
    bits = (bits ^ (bits >> np.uint64(27))) * SECOND
    return bits ^ (bits >> np.uint64(31))


def uniform(keys: Keys, count: int) -> Tensor:
    """Numbers between 0 and 1, float32 [keys, count]: of each key, those of the places from 1 on."""
    keys, out = np.ascontiguousarray(keys, np.uint64), torch.empty(len(keys), count)
    _uniform(keys.ctypes.data, len(keys), count, out.data_ptr())
    return out
