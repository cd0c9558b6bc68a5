"""Uniform random numbers that depend on a key and a place alone, by SplitMix64 (Steele, Lea and Flood 2014).

Called by `transept.core.execution.noise`, which makes the same numbers on other devices.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import prange

from transept.core.kernels.launch import kernel

STEP = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
LEAST, MOST = 2.0**-64, 1 - 2.0**-24  # neither 0 nor 1, even after rounding to float32
PIECE = 8192  # numbers

Keys = npt.NDArray[np.uint64]


def mixed(bits: Keys) -> Keys:
    """Integers that look like drawn by lot, one for each."""
    bits = (bits ^ (bits >> np.uint64(30))) * FIRST
    bits = (bits ^ (bits >> np.uint64(27))) * SECOND
    return bits ^ (bits >> np.uint64(31))


_mixed = kernel(exact=True)(mixed)


@kernel(parallel=True, exact=True)
def fill(keys: Keys, out: npt.NDArray[np.float32]) -> None:
    """Fill [keys, count] with numbers between 0 and 1: of each key, those of the places from 1 on."""
    num_rows, count = out.shape
    pieces = (count + PIECE - 1) // PIECE
    for job in prange(num_rows * pieces):
        row, first = np.int64(job // pieces), np.int64(job % pieces * PIECE)
        for i in range(first, min(first + PIECE, count)):
            bits = _mixed(keys[row] + np.uint64(i + 1) * STEP)
            number = np.float32(np.int64(bits >> np.uint64(1))) * np.float32(2.0**-63)
            out[row, i] = min(max(number, np.float32(LEAST)), np.float32(MOST))
