"""The library of CPU kernels for this processor: loaded once, its functions bound, its threads PyTorch's.

The kernels are C++, compiled when the package is built, once for each instruction set (setup.py). Importing them starts
no thread. Their functions let other Python threads run meanwhile. They check nothing: the modules beside the sources
compare shapes and bounds before a kernel reads memory.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transept.core.kernels.openmp import end_openmp_threads, openmp_library
from transept.errors import ForkedProcessError, KernelsNotBuiltError, ParameterError

# Lowest first; see setup.py. A processor may have avx_vnni and all, some or none of those after it.
LEVELS = ("portable", "avx2", "avx_vnni", "avx512", "avx512_vnni", "avx512_bf16", "amx")
WITH_AMX = LEVELS[-1:]
WITH_BFLOAT16 = LEVELS[-2:]
WITH_VNNI = ("avx_vnni", *LEVELS[-3:])  # which multiply four pairs of bytes at a time
LEVEL_VARIABLE = "TRANSEPT_CPU_LEVEL"  # lowers the level, to measure or to test

Pointer, Int, Float = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float

_HERE = Path(__file__).parent
_REBUILD = "build them with `pip install --editable .`, or `make`, in the checkout"


def bind(name: str, *types: Any, returns: Any = None) -> Callable[..., Any]:
    """A function of the library. types: of its arguments, of Pointer, Int and Float."""
    function = library()[name]
    function.argtypes, function.restype = types, returns
    return function


@cache
def library() -> ctypes.CDLL:
    """The library of `level()`.

    Raises KernelsNotBuiltError where it is missing, or in a checkout is that of other sources.
    """
    return _load(level())


@cache
def level() -> str:
    """The instruction set that kernels use here: the highest of LEVELS that the processor has.

    TRANSEPT_CPU_LEVEL makes it the highest up to that one. Raises ParameterError where it is none of LEVELS.
    """
    wanted = os.environ.get(LEVEL_VARIABLE) or LEVELS[-1]
    if wanted not in LEVELS:
        raise ParameterError(f"{LEVEL_VARIABLE} is {wanted!r}, and not one of {', '.join(LEVELS)}")
    return [name for name in levels() if LEVELS.index(name) <= LEVELS.index(wanted)][-1]


def levels() -> list[str]:
    """Those of LEVELS that the processor has."""
    runs = int(_load(LEVELS[0]).transept_levels())
    return [name for number, name in enumerate(LEVELS) if runs >> number & 1]


def reads_float16() -> bool:
    """Whether kernels read float16 as fast as float32; elsewhere each number takes several instructions."""
    return level() != LEVELS[0]


def multiplies_bfloat16() -> bool:
    """Whether the processor does; elsewhere kernels multiply what was rounded to it in float32."""
    return level() in WITH_BFLOAT16


def runs_on(tensor: Tensor) -> bool:
    """Whether a tensor is float32 on the CPU, as all that goes to a kernel with it must be, and wants no gradient."""
    return tensor.dtype is torch.float32 and tensor.is_cpu and not tensor.requires_grad


def share_num_threads() -> None:
    """Let this thread's kernels run on as many threads as PyTorch's operators do now, and on the same ones.

    Called as a worker is made and before each of its steps; a thread that never calls it runs kernels by itself. Raises
    ForkedProcessError in a process that was forked after the first call.
    """
    global _threads_started
    if _forked_from_threads:
        raise ForkedProcessError(
            "no engine runs in this process: it was forked after the threads of Transept's kernels had been started, "
            'and a fork leaves threads behind. Start it with multiprocessing.get_context("spawn"), or fork before the '
            "first engine is made"
        )
    if not _threads_started:
        _threads_started = True
        openmp = openmp_library()
        parallel = None if openmp is None else ctypes.cast(openmp.GOMP_parallel, Pointer)
        bind("transept_use_gomp", Pointer)(parallel)
    _set_num_threads()(torch.get_num_threads())


@cache
def _set_num_threads() -> Callable[[int], None]:
    return bind("transept_set_num_threads", ctypes.c_int)


def _load(level: str) -> ctypes.CDLL:
    file = _HERE / "lib" / f"kernels_{level}.so"
    try:
        loaded = ctypes.CDLL(str(file))
    except OSError as error:
        raise KernelsNotBuiltError(f"the CPU kernels cannot be loaded ({error}); {_REBUILD}") from None
    loaded.transept_fingerprint.restype = ctypes.c_char_p
    if any(_HERE.glob("*.cpp")) and loaded.transept_fingerprint().decode() != _fingerprint():
        raise KernelsNotBuiltError(f"the CPU kernels in {file.parent} were built from other sources; {_REBUILD}")
    return loaded


@cache
def _fingerprint() -> str:
    """The sources' content, as in setup.py; an installed package has none of them."""
    root, digest = _HERE.parents[3], hashlib.sha256()
    for file in [*sorted(_HERE.rglob("*.h")), *sorted(_HERE.rglob("*.cpp"))]:
        digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _note_fork() -> None:
    global _forked_from_threads
    _forked_from_threads = _threads_started


_threads_started = _forked_from_threads = False
if hasattr(os, "register_at_fork"):  # where processes fork
    os.register_at_fork(before=end_openmp_threads, after_in_child=_note_fork)
