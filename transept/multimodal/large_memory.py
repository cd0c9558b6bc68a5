"""Memory for hours of audio, freed without holding Python's lock.

Freeing gigabytes takes up to a second, and an array or a bytearray is freed under the GIL, so a server cannot answer
meanwhile. A memory map is released without the GIL. Readers of whole recordings and their features allocate here.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

LARGE_BYTES = 32 << 20  # from here on memory is mapped; freeing less takes milliseconds
GROWTH = 9 / 8  # of the memory that samples are appended to, as in a bytearray
HAS_MREMAP = sys.platform == "linux"


def empty(shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    """Return an array with uninitialized elements, like numpy.empty."""
    size = math.prod(shape)
    if size * 4 < LARGE_BYTES:
        return np.empty(shape, np.float32)
    return np.frombuffer(_mapped(size * 4), np.float32, size).reshape(shape)


class GrowingSamples:
    """A growing buffer of float32 samples. Large buffers are never copied, so they are in memory only once."""

    def __init__(self) -> None:
        self._memory: Any = bytearray()
        self._num_bytes = 0

    def append(self, samples: npt.NDArray[np.float32]) -> None:
        """Append a block [num_samples]."""
        if isinstance(self._memory, bytearray):
            self._memory += np.ascontiguousarray(samples).data
            self._num_bytes = len(self._memory)
            if HAS_MREMAP and self._num_bytes >= LARGE_BYTES:
                mapped = _mapped(int(self._num_bytes * GROWTH))  # which grows in place
                mapped[: self._num_bytes] = self._memory
                self._memory = mapped
            return
        end = self._num_bytes + samples.size * 4
        if end > len(self._memory):
            self._memory.resize(int(end * GROWTH))
        np.frombuffer(self._memory, np.float32, samples.size, self._num_bytes)[:] = samples
        self._num_bytes = end

    def array(self) -> npt.NDArray[np.float32]:
        """Return all samples, [num_samples]. Nothing can be appended afterwards."""
        return np.frombuffer(self._memory, np.float32, self._num_bytes // 4)


def _mapped(num_bytes: int) -> mmap.mmap:
    """Return private memory of the process, in huge pages if the system has them."""
    if sys.platform != "linux":
        return mmap.mmap(-1, num_bytes)
    memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memory
