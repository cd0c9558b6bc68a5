"""Return memory that was freed, but that the C library keeps for the process, to the system.

glibc keeps freed chunks for later allocations. Loading leaves many, too small for activations, and the first encode
leaves more; together they make the peak of a short run. So the worker and the encoder runner return freed memory once,
before and after both. Later steps allocate about the same sizes, so they reuse it. The process's malloc options are not
changed: they belong to the program that uses the engine.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


def trim_heap() -> None:
    """Return all free pages to the system; do nothing if the C library is not glibc.

    Takes 1 to 10 ms. Other threads that allocate wait meanwhile.
    """
    library = _glibc()
    if library is not None:
        library.malloc_trim(0)


@contextmanager
def trimmed_heap() -> Iterator[None]:
    """Return freed memory to the system before and after the body."""
    trim_heap()
    try:
        yield
    finally:
        trim_heap()


@cache
def _glibc() -> ctypes.CDLL | None:
    if sys.platform == "linux":
        library = ctypes.CDLL(None)
        if hasattr(library, "malloc_trim"):  # musl has none
            library.malloc_trim.argtypes = (ctypes.c_size_t,)
            return library
    return None
