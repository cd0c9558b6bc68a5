"""Ranks as threads of one process, which exchange what they have at a barrier: for layers, without an engine."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from torch import Tensor

from transept.core.parallel.group import Exchange, ParallelGroup


class ThreadExchange(Exchange):
    def __init__(self, rank: int, barrier: threading.Barrier, slots: list[Any]) -> None:
        self.rank, self.barrier, self.slots = rank, barrier, slots

    def gather(self, x: Tensor) -> Sequence[Tensor]:
        self.slots[self.rank] = x.clone()
        self.barrier.wait(60)
        gathered = [*self.slots]
        self.barrier.wait(60)
        return gathered


def on_ranks(size: int, function: Callable[[ParallelGroup], Any]) -> list[Any]:
    """What the function returns on each rank."""
    barrier, slots = threading.Barrier(size), [None] * size
    groups = [ParallelGroup(rank, size, ThreadExchange(rank, barrier, slots)) for rank in range(size)]
    with ThreadPoolExecutor(size) as pool:
        return [future.result() for future in [pool.submit(function, group) for group in groups]]
