"""SharedMemoryExchange: exchanges tensors between the ranks of one machine through memory that all of them map.

A step of a small model makes dozens of exchanges of a few kilobytes. Through sockets, which gloo uses, each takes
longer than the product before it; here a rank writes its tensor, then a number, and polls the others' numbers.

A rank that sees the number must also see the tensor. x86 makes stores visible in their order; other processors use
gloo.
"""

from __future__ import annotations

import mmap
import os
import platform
import sys
import time
from collections.abc import Sequence

import torch
from torch import Tensor

from transept.core.parallel.group import Exchange, ExchangeError
from transept.system import usable_cores

SLOT_BYTES = 1 << 20  # the largest piece of a tensor: it stays in a core's cache
LINE = 64  # bytes of a cache line; each rank's numbers have one
SPIN_SECONDS = 100e-6  # within which another rank usually arrives, if it has its own core
YIELD_SECONDS = 20e-3  # up to which this rank yields the core; later it sleeps
NAP_SECONDS = 100e-6
MOST_VIEWS = 4096
VARIABLE = "TRANSEPT_EXCHANGE"  # "gloo" instead of shared memory and sockets, for measurements and tests


def serves() -> bool:
    """Return whether ranks on this machine's processor can use a SharedMemoryExchange."""
    ordered = platform.machine().lower() in ("x86_64", "amd64")
    return ordered and sys.platform != "win32" and is_local()


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
        self._numbers = memoryview(mapped)[: size * LINE].cast("q")
        self._lines = [each * LINE // 8 for each in range(size)]
        self._own = self._lines[rank]
        self._others = [line for line in self._lines if line != self._own]
        self._memory = torch.frombuffer(mapped, dtype=torch.uint8)
        self._views: dict[tuple[int, torch.dtype, torch.Size], list[Tensor]] = {}
        self._num_calls = 0
        self._spin_seconds = SPIN_SECONDS if size <= usable_cores() else 0.0

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
        numbers, slot = self._numbers, call % 2
        views = self._views_of(slot, x)
        views[self._rank].copy_(x)
        numbers[self._own + 1 + slot] = x.nbytes
        numbers[self._own] = call  # the last store: a rank that sees it also sees the others
        for line in self._others:
            if numbers[line] < call:
                self._wait(line, call)
            if numbers[line + 1 + slot] != x.nbytes:
                raise ExchangeError("ranks are out of step: they exchange tensors of different sizes")
        return views

    def _wait(self, line: int, call: int) -> None:
        """Wait until a rank has begun this call. If it never does, the engine's process kills this one."""
        numbers, begin = self._numbers, time.perf_counter()
        while numbers[line] < call:
            waited = time.perf_counter() - begin
            if waited > YIELD_SECONDS:
                time.sleep(NAP_SECONDS)
            elif waited > self._spin_seconds:
                os.sched_yield()

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
