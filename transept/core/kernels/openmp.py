"""Find the OpenMP that PyTorch has loaded, and end the idle threads that it leaves. No torch here.

On Linux that is GNU OpenMP; on a Mac LLVM's, which has GNU's functions too. PyTorch for Windows has another, without
them.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import suppress

PAUSE_HARD = 2  # omp_pause_hard of OpenMP 5.0, section 3.5.2: with threads' own memory


def openmp_library() -> ctypes.CDLL | None:
    """Return an OpenMP with GNU's functions if this process has loaded one, such as a copy in a wheel; else None."""
    global _library
    if _library is None:
        _library = _loaded_library()
    return _library


def end_openmp_threads() -> None:
    """End OpenMP's threads of the calling thread. Its next parallel loop starts them again.

    A forked child would wait for these threads forever. And while a process has more of them than cores, they do not
    spin before they sleep, which delays the start of every thread's loops.
    """
    library = openmp_library()
    if library is not None:
        with suppress(AttributeError):  # GCC's before 9
            library.omp_pause_resource_all(PAUSE_HARD)


def _loaded_library() -> ctypes.CDLL | None:
    if sys.platform != "win32":
        for name in _names():
            with suppress(OSError):  # not loaded
                return ctypes.CDLL(name, mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    return None


def _names() -> Iterator[str]:
    """Yield names and paths of libraries that may be loaded."""
    if sys.platform == "darwin":
        process = ctypes.CDLL(None)
        process._dyld_get_image_name.restype = ctypes.c_char_p
        loaded = (os.fsdecode(process._dyld_get_image_name(index)) for index in range(process._dyld_image_count()))
        yield from (path for path in loaded if os.path.basename(path) in ("libomp.dylib", "libiomp5.dylib"))
        return
    yield "libgomp.so.1"
    with suppress(OSError), open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as mapped:
        paths = {line.split(maxsplit=5)[-1].strip() for line in mapped if "libgomp" in line}
        yield from sorted(path for path in paths if os.path.basename(path).startswith("libgomp"))


_library: ctypes.CDLL | None = None
