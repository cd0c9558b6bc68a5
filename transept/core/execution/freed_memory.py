"""Memory that was freed, and that the C library keeps for the process: given back to the system.

glibc keeps freed pieces between others. Loading leaves many of them, too small for activations, and the first step that
encodes others beside those, which together are the peak of a short run. The worker and the model runner put what is
here around both, once. What runs later needs about the same again, and keeps it.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

# mallopt(3)'s numbers of two parameters, and the largest values that glibc comes to by itself.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LARGEST_TRIM, LARGEST_MMAP = 64 << 20, 32 << 20
SMALLEST = 128 << 10  # bytes, both parameters' value before glibc raises them


def give_back_freed_memory() -> None:
    """Let the system have every page that holds nothing; does nothing where the C library is not glibc.

    Takes 1 to 10 ms, for which other threads that allocate wait.
    """
    library = _glibc()
    if library is not None:
        library.malloc_trim(0)


@contextmanager
def large_blocks_given_back() -> Iterator[None]:
    """Give back all freed memory before and after what is within, and there each block of 128 KB or more when freed.

    Afterwards glibc keeps blocks of up to 32 MB, as it comes to do by itself in a process with larger ones.
    """
    give_back_freed_memory()
    library = _glibc()
    chosen = any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ)
    if library is not None and not chosen:
        library.mallopt(M_MMAP_THRESHOLD, SMALLEST)
        library.mallopt(M_TRIM_THRESHOLD, SMALLEST)
    try:
        yield
    finally:
        if library is not None and not chosen:
            library.mallopt(M_MMAP_THRESHOLD, LARGEST_MMAP)
            library.mallopt(M_TRIM_THRESHOLD, LARGEST_TRIM)
        give_back_freed_memory()


@cache
def _glibc() -> ctypes.CDLL | None:
    if not sys.platform.startswith("linux"):
        return None
    library = ctypes.CDLL(None)
    if not hasattr(library, "malloc_trim"):  # musl has none
        return None
    library.malloc_trim.argtypes = (ctypes.c_size_t,)
    library.mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    return library
