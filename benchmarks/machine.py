"""What this machine can do: the rates that bounds are computed from."""

from __future__ import annotations

import time
from collections.abc import Callable

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
    """Bytes per second that a sum over a large float32 array reads."""
    array = torch.ones(1 << 26)
    return array.nbytes / best_seconds(array.sum, repeats=7)


def describe_bound(arithmetic: float, memory: float, rate: float, bandwidth: float) -> str:
    """One line: seconds of arithmetic and of memory traffic that a task needs at least, at these rates."""
    return (
        f"bound: {arithmetic:.2f} s of arithmetic at {rate / 1e9:.0f} GFLOP/s + {memory:.2f} s of memory traffic at "
        f"{bandwidth / 1e9:.1f} GB/s = {arithmetic + memory:.2f} s"
    )
