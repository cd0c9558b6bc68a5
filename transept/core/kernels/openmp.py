"""End GNU OpenMP's idle threads, which PyTorch leaves in each thread that has used OpenMP. No torch here."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

PAUSE_HARD = 2  # omp_pause_hard of OpenMP 5.0, section 3.5.2: with threads' own memory


def openmp_library() -> ctypes.CDLL | None:
    """Return GNU OpenMP if this process has loaded it, under its own name or the name of a wheel's copy; else None."""
    global _library
    if _library is None:
        _library = _loaded_library()
    return _library


def end_openmp_threads() -> None:
    """End GNU OpenMP's threads of the calling thread. Its next parallel loop starts them again.

    A forked child would wait for these threads forever. And while a process has more of them than cores, they do not
    spin before they sleep, which delays the start of every thread's loops.
    """
    library = openmp_library()
    if library is not None:
        with suppress(AttributeError):  # GCC's before 9
            library.omp_pause_resource_all(PAUSE_HARD)


def _loaded_library() -> ctypes.CDLL | None:
    names = ["libgomp.so.1"]
    with suppress(OSError), open("/proc/self/maps") as mapped:
        paths = {line.split(maxsplit=5)[-1].strip() for line in mapped if "libgomp" in line}
        names += sorted(path for path in paths if os.path.basename(path).startswith("libgomp"))
    for name in names:
        try:
            return ctypes.CDLL(name, mode=os.RTLD_NOW | os.RTLD_NOLOAD)
        except (OSError, AttributeError):  # not loaded, or a system without this
            continue
    return None


_library: ctypes.CDLL | None = None
