"""What this machine can do: the rates that bounds are computed from."""

from __future__ import annotations

import time
from collections.abc import Callable

import numba
import numpy as np
import numpy.typing as npt
import torch


def best_seconds(function: Callable[[], object], repeats: int = 15) -> float:
    """Shortest time of several runs."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return min(times)


def gemm_rate() -> float:
    """Floating-point operations per second of a float32 matrix product with many rows."""
    x, weight = torch.randn(1500, 512), torch.randn(2048, 512)
    return 2 * 1500 * 512 * 2048 / best_seconds(lambda: torch.nn.functional.linear(x, weight))


def read_bandwidth() -> float:
    """Bytes per second that a reduction over a large float32 array reads; each thread reads four places in turn."""
    array = np.ones((64, 4, 1 << 18), np.float32)
    return array.nbytes / best_seconds(lambda: _sum(array), repeats=7)


@numba.njit(parallel=True, fastmath=True)
def _sum(array: npt.NDArray[np.float32]) -> float:
    total = 0.0
    for piece in numba.prange(len(array)):
        part = np.float32(0)
        for i in range(array.shape[2]):
            part += array[piece, 0, i] + array[piece, 1, i] + array[piece, 2, i] + array[piece, 3, i]
        total += part
    return total


def describe_bound(arithmetic: float, memory: float, rate: float, bandwidth: float) -> str:
    """One line: seconds of arithmetic and of memory traffic that a task needs at least, at these rates."""
    return (
        f"bound: {arithmetic:.2f} s of arithmetic at {rate / 1e9:.0f} GFLOP/s + {memory:.2f} s of memory traffic at "
        f"{bandwidth / 1e9:.1f} GB/s = {arithmetic + memory:.2f} s"
    )
