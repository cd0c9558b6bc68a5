"""The library of CPU kernels for this processor: loaded once, its functions bound, its threads PyTorch's.

The kernels are C++, compiled when the package is built, once for each instruction set (setup.py). The library is
loaded when the first kernel is called, or chosen by the processor's capabilities: importing this loads nothing, and an
engine on a GPU calls none. Loading starts no thread. Kernels let other Python threads run meanwhile. They check
nothing: the modules beside the sources compare shapes and bounds before a kernel reads memory.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transept.core.kernels.cpu.isas import BF16_DOT, FP16_CONVERT, Isa, compiled_on
from transept.core.kernels.cpu.processor import instruction_sets, permits
from transept.core.kernels.openmp import end_openmp_threads, openmp_library
from transept.errors import CapacityError, ForkedProcessError, KernelsNotBuiltError, ParameterError

_ISAS = compiled_on(platform.machine())
LEVELS = tuple(isa.name for isa in _ISAS)
LEVEL_VARIABLE = "TRANSEPT_CPU_LEVEL"  # lowers the level, to measure or to test

Pointer, Int, Float = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float

SUFFIX = ".dll" if os.name == "nt" else ".so"  # as setup.py names libraries

_HERE = Path(__file__).parent
_REBUILD = "build them with `pip install --editable .`, or `make`, in the checkout"


class KernelFunction:
    """A kernel of the library, which is loaded and bound when the kernel is first called.

    types: of the arguments: Pointer, Int and Float. The result is an Int of at least -1; less means that the kernel got
    no scratch memory (`run_kernel` in export.h).
    """

    __slots__ = ("_call", "_name", "_types")

    def __init__(self, name: str, *types: Any) -> None:
        self._name, self._types = name, types
        self._call: Callable[..., int] = self._bind_and_call

    def __call__(self, *arguments: Any) -> int:
        """Run the kernel; other Python threads run meanwhile. Raises CapacityError if it gets no scratch memory."""
        result = self._call(*arguments)
        if result < -1:
            raise CapacityError(
                f"the system refused a CPU kernel {-result / 1e6:.1f} MB of scratch memory. Give the process more "
                "memory, or compute less at a time: lower {max_num_seqs}, {max_encoder_tokens} or {max_decoder_tokens}",
                others=("max_num_seqs", "max_encoder_tokens", "max_decoder_tokens"),
            )
        return result

    def _bind_and_call(self, *arguments: Any) -> int:
        self._call = _bound(self._name, *self._types, returns=Int)
        return self._call(*arguments)


def pointer(tensor: Tensor | None) -> int | None:
    """Return the address of a tensor's first element, as kernels take it; None for None."""
    return None if tensor is None else tensor.data_ptr()


@cache
def library() -> ctypes.CDLL:
    """Return the library of `level()`.

    Raises KernelsNotBuiltError if it is missing, or was built from other sources than a checkout's.
    """
    return _load(level())


def level() -> str:
    """Return the name of the instruction set that kernels use.

    It is the highest that the processor runs and the system permits. TRANSEPT_CPU_LEVEL makes it the highest up to that
    one. Raises ParameterError if the variable names none of LEVELS.
    """
    return _chosen().name


def capabilities() -> frozenset[str]:
    """Return the capabilities of `level()`."""
    return _chosen().capabilities


def levels() -> list[str]:
    """Return the names in LEVELS that the processor runs. Only `level` requests permission."""
    return [isa.name for isa in instruction_sets(_portable())]


@cache
def _chosen() -> Isa:
    wanted = os.environ.get(LEVEL_VARIABLE) or LEVELS[-1]
    if wanted not in LEVELS:
        message = f"{LEVEL_VARIABLE} is {wanted!r}, and not one of {', '.join(LEVELS)}"
        raise ParameterError(message, param=LEVEL_VARIABLE, value=wanted)
    most, portable = LEVELS.index(wanted), _portable()
    for isa in reversed(instruction_sets(portable)):
        if LEVELS.index(isa.name) <= most and permits(isa, portable):
            return isa
    return _ISAS[0]


@cache
def _portable() -> ctypes.CDLL:
    return _load(LEVELS[0])


def reads_float16() -> bool:
    """Return True if the processor converts float16 in one instruction, so that kernels read it as fast as float32."""
    return FP16_CONVERT in capabilities()


def multiplies_bfloat16() -> bool:
    """Return True if the processor multiplies bfloat16; elsewhere kernels multiply numbers rounded to it in float32."""
    return BF16_DOT in capabilities()


def runs_on(tensor: Tensor) -> bool:
    """Return True if a tensor is float32 on the CPU and requires no gradient, as kernels' arguments must."""
    return tensor.dtype is torch.float32 and tensor.is_cpu and not tensor.requires_grad


def share_num_threads() -> None:
    """Let kernels that this thread calls run on PyTorch's OpenMP threads, as many as PyTorch's operators use now.

    A worker on a CPU calls this when it is made and before each of its steps. Without this call, kernels run on the
    calling thread only. Raises ForkedProcessError in a process that was forked after the first call.
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
        _bound("transept_use_gomp", Pointer)(parallel)
    _bound("transept_set_num_threads", ctypes.c_int)(torch.get_num_threads())


def scratch_bytes() -> int:
    """Return the bytes of scratch memory that kernels keep for their next calls, of all threads."""
    return int(_bound("transept_scratch_bytes", returns=Int)()) if library.cache_info().currsize else 0


def free_scratch() -> None:
    """Free the scratch memory that kernels keep. Does nothing while a kernel runs in another thread."""
    if library.cache_info().currsize:
        _bound("transept_free_scratch", returns=Int)()


@cache
def _bound(name: str, *types: Any, returns: Any = None) -> Callable[..., Any]:
    """Return a function of the library, with the types of its arguments and of its result."""
    function = library()[name]
    function.argtypes, function.restype = types, returns
    return function


def _load(level: str) -> ctypes.CDLL:
    file = _HERE / "lib" / f"kernels_{level}{SUFFIX}"
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
    """Return a hash of the sources, as setup.py does; an installed package has none of them."""
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
