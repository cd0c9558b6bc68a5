"""Memory that was freed, and that the C library keeps for the process: return it to the system.

glibc keeps freed pieces between others. Loading leaves many of them, too small for activations, and the first step that
encodes leaves others beside those; together they are the peak of a short run. So the worker and the encoder runner
return freed memory around both, once. Later steps need about the same memory again, and keep it. The process's malloc
options stay as they are: they belong to the program that uses the engine.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache


def return_freed_memory() -> None:
    """Return every page that holds nothing to the system; does nothing where the C library is not glibc.

    Takes 1 to 10 ms, for which other threads that allocate wait.
    """
    library = _glibc()
    if library is not None:
        library.malloc_trim(0)


@contextmanager
def freed_memory_returned() -> Iterator[None]:
    """Return freed memory to the system before and after the body."""
    return_freed_memory()
    try:
        yield
    finally:
        return_freed_memory()


@cache
def _glibc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    if not hasattr(library, "malloc_trim"):  # musl has none
        return None
    library.malloc_trim.argtypes = (ctypes.c_size_t,)
    return library
