"""Memory that was freed, and that the C library keeps for the process: given back to the system.

glibc gives back what was freed at the end of its heap, and keeps the pieces between others. Loading leaves many of
them, too small for activations, and a first run of an encoder others beside those: the worker and the model runner call
this after each, once. What runs later needs about the same again, and keeps it.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache


def give_back_freed_memory() -> None:
    """Let the system have every page that holds nothing; does nothing where the C library is not glibc.

    Takes 1 to 10 ms, for which other threads that allocate wait.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], int] | None:
    """malloc_trim(3) of glibc, from the bytes to keep at the heap's end to whether any memory was given back."""
    if not sys.platform.startswith("linux"):
        return None
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # musl has none
    if trim is not None:
        trim.argtypes, trim.restype = (ctypes.c_size_t,), ctypes.c_int
    return trim
