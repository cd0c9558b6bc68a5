"""Ranks as threads of one process, which exchange what they have at a barrier: for layers, without an engine."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from functools import partial
from typing import Any

from torch import Tensor

from transept.core.parallel.group import Exchange, ParallelGroup

LONGEST_SECONDS = 60


class ThreadExchange(Exchange):
    def __init__(self, rank: int, barrier: threading.Barrier, slots: list[Any]) -> None:
        self.rank, self.barrier, self.slots = rank, barrier, slots

    def gather(self, x: Tensor) -> Sequence[Tensor]:
        self.slots[self.rank] = x.clone()
        self.barrier.wait(LONGEST_SECONDS)
        gathered = [*self.slots]
        self.barrier.wait(LONGEST_SECONDS)
        return gathered


def on_ranks(size: int, function: Callable[[ParallelGroup], Any]) -> list[Any]:
    """What the function returns on each rank."""
    barrier, slots = threading.Barrier(size), [None] * size
    groups = [ParallelGroup(rank, size, ThreadExchange(rank, barrier, slots)) for rank in range(size)]
    return on_threads([partial(function, group) for group in groups])


def on_threads(functions: Sequence[Callable[[], Any]]) -> list[Any]:
    """What each function returns, in a thread of its own.

    The first exception is raised at once. Threads that wait for the one that failed are left behind: they are daemons.
    """
    futures: list[Future[Any]] = [Future() for _ in functions]

    def run(function: Callable[[], Any], future: Future[Any]) -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    for each in zip(functions, futures, strict=True):
        threading.Thread(target=run, args=each, daemon=True).start()
    done, waiting = wait(futures, LONGEST_SECONDS, FIRST_EXCEPTION)
    for future in done:
        future.result()
    assert not waiting, f"{len(waiting)} threads still wait after {LONGEST_SECONDS} s"
    return [future.result() for future in futures]
