"""SharedMemoryExchange: exchanges tensors between the ranks of one machine through memory that all of them map.

A step of a small model makes dozens of exchanges of a few kilobytes. Through sockets, which gloo uses, each takes
longer than the product before it; here a rank writes its tensor, then a number, and polls the others' numbers. A rank
that sees the number must also see the tensor, and Python cannot order memory. So a kernel writes and polls the numbers.
"""

from __future__ import annotations

import mmap
import os
import sys
import time
from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor

from transept.core.kernels.dispatch import ARRIVE
from transept.core.parallel.group import Exchange, ExchangeError
from transept.system import usable_cores

SLOT_BYTES = 1 << 20  # the largest piece of a tensor: it stays in a core's cache
LINE = 64  # bytes of a cache line; each rank's numbers have one
SPIN_NANOSECONDS = 100_000  # within which another rank usually arrives, if it has its own core
YIELD_SECONDS = 20e-3  # up to which this rank yields the core; later it sleeps
NAP_SECONDS = 100e-6
MOST_VIEWS = 4096
VARIABLE = "TRANSEPT_EXCHANGE"  # "gloo" instead of shared memory and sockets, for measurements and tests


def serves() -> bool:
    """Return True if the ranks of this machine can use a SharedMemoryExchange."""
    return sys.platform != "win32" and is_local()


def is_local() -> bool:
    """Return whether ranks may use shared memory and socket pairs."""
    return os.environ.get(VARIABLE) != "gloo"


def memory_bytes(size: int) -> int:
    """Return the size of the memory that `size` ranks share."""
    return size * (LINE + 2 * SLOT_BYTES)


class SharedMemoryExchange(Exchange):
    """One rank's end. descriptor: of `memory_bytes` of memory, all zeros at first; this class closes it."""

    piece_bytes = SLOT_BYTES

    #  each rank's line     calls begun | bytes in its slot 0 | bytes in its slot 1
    #  then of each rank    slot 0 | slot 1
    #
    # Call n uses slot n % 2. A rank writes there again in call n + 2, after it has seen that all others have begun call
    # n + 1, and so have finished with the tensors of call n.

    def __init__(self, rank: int, size: int, descriptor: int) -> None:
        self._rank, self._size = rank, size
        mapped = mmap.mmap(descriptor, memory_bytes(size))
        os.close(descriptor)
        self._memory = torch.frombuffer(mapped, dtype=torch.uint8)
        self._arrive = partial(ARRIVE.only, self._memory.data_ptr(), rank, size)
        self._views: dict[tuple[int, torch.dtype, torch.Size], list[Tensor]] = {}
        self._num_calls = 0
        self._spin_nanoseconds = SPIN_NANOSECONDS if size <= usable_cores() else 0

    def gather(self, x: Tensor) -> Sequence[Tensor]:
        """See Exchange."""
        if x.nbytes <= SLOT_BYTES:
            return self._gather(x)
        flat = x.flatten()
        parts = [torch.empty_like(flat) for _ in range(self._size)]
        count = SLOT_BYTES // x.element_size()
        for start in range(0, len(flat), count):
            for part, piece in zip(parts, self._gather(flat[start : start + count]), strict=True):
                part[start : start + count] = piece
        return [part.view(x.shape) for part in parts]

    def _gather(self, x: Tensor) -> list[Tensor]:
        self._num_calls = call = self._num_calls + 1
        views = self._views_of(call % 2, x)
        views[self._rank].copy_(x)
        arrived = self._arrive(call, x.nbytes, self._spin_nanoseconds) or self._wait(call, x.nbytes)
        if arrived < 0:
            raise ExchangeError("ranks are out of step: they exchange tensors of different sizes")
        return views

    def _wait(self, call: int, num_bytes: int) -> int:
        """Wait until all ranks have begun this call. If one never does, the engine's process kills this one."""
        begin = time.perf_counter()
        while not (arrived := self._arrive(call, num_bytes, 0)):
            if time.perf_counter() - begin > YIELD_SECONDS:
                time.sleep(NAP_SECONDS)
            else:
                os.sched_yield()
        return arrived

    def _views_of(self, slot: int, x: Tensor) -> list[Tensor]:
        """Return each rank's slot as a tensor of x's shape."""
        key = slot, x.dtype, x.shape
        views = self._views.get(key)
        if views is None:
            if len(self._views) >= MOST_VIEWS:
                self._views.clear()
            first = self._size * LINE + slot * SLOT_BYTES
            starts = [first + 2 * SLOT_BYTES * rank for rank in range(self._size)]
            views = [self._memory[start : start + x.nbytes].view(x.dtype).view(x.shape) for start in starts]
            self._views[key] = views
        return views
