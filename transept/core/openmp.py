"""GNU OpenMP's idle threads, which PyTorch and Numba leave behind in each thread that has used them. No torch here."""

from __future__ import annotations

import ctypes
import os

PAUSE_HARD = 2  # omp_pause_hard of OpenMP 5.0, section 3.5.2: with threads' own memory


def end_openmp_threads() -> None:
    """End what GNU OpenMP has started for the calling thread; the next parallel loop starts it again.

    A forked child would wait for these threads for ever. And while a process has more of them than cores, none of them
    spins before it sleeps: the loops of every thread then begin much later.
    """
    try:
        library = ctypes.CDLL("libgomp.so.1", mode=os.RTLD_NOW | os.RTLD_NOLOAD)
        library.omp_pause_resource_all(PAUSE_HARD)
    except (OSError, AttributeError):  # another OpenMP, which survives a fork, or GNU's before GCC 9
        return
