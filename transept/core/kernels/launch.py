"""How a kernel is compiled, when it can run, and on how many threads.

Importing a kernel starts no thread. Those that run kernels do not survive a fork; see `match_threads`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from threading import Lock
from typing import Any

import numba
import torch
from torch import Tensor

from transept.core.openmp import end_openmp_threads
from transept.errors import ForkedProcessError

FAST_MATH = {"reassoc", "contract", "nsz", "arcp"}  # sums in any order; infinities and NaNs keep their meaning
EXACT = {"contract"}  # a product may be added without being rounded before


def kernel(*, parallel: bool = False, exact: bool = False, nogil: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function as it is first called, and keep the result on disk where a folder for that can be written.

    exact: with EXACT instead of FAST_MATH. Divisions by zero are infinite: a check would keep loops from becoming
    vector instructions. nogil: let other Python threads run meanwhile, for kernels that jobs beside an engine call.
    These are not parallel: see `one_at_a_time`.
    """
    options: dict[str, Any] = {
        "parallel": parallel,
        "nogil": nogil,
        "error_model": "numpy",
        "no_cfunc_wrapper": True,
        "fastmath": EXACT if exact else FAST_MATH,
    }

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(function, cache=True, **options)
        except RuntimeError:  # neither beside this file nor in the user's cache
            return numba.njit(function, **options)

    return decorate


def runs_on(tensor: Tensor) -> bool:
    """Whether a tensor is float32 on the CPU, as all that goes to a kernel with it must be, and wants no gradient."""
    return tensor.dtype is torch.float32 and tensor.is_cpu and not tensor.requires_grad


def match_threads() -> None:
    """Let this thread's kernels run on as many threads as PyTorch's operators do now. The first call starts them.

    Called as a worker is made and before each of its steps. Raises ForkedProcessError in a process that was forked
    after they were started.
    """
    if _forked_from_threads:
        raise ForkedProcessError(
            "no engine runs in this process: it was forked after the threads of Transept's kernels had been started, "
            'and a fork leaves threads behind. Start it with multiprocessing.get_context("spawn"), or fork before the '
            "first engine is made"
        )
    num_threads = torch.get_num_threads()
    numba.set_num_threads(min(num_threads, numba.config.NUMBA_NUM_THREADS))  # type: ignore[attr-defined]
    if torch.get_num_threads() != num_threads:
        torch.set_num_threads(num_threads)  # Numba's pool starts on all cores, and PyTorch's is the same one


def one_at_a_time() -> AbstractContextManager[Any]:
    """Held during a step, in which parallel kernels run: two at once end the process under Numba's `workqueue`.

    That is what Numba has where it finds neither OpenMP nor TBB. With these, engines in several threads run beside each
    other.
    """
    return _turn if numba.threading_layer() == "workqueue" else nullcontext()  # type: ignore[attr-defined]


def _threads_started() -> bool:
    try:
        numba.threading_layer()  # type: ignore[attr-defined]
    except ValueError:  # none is chosen before threads are started
        return False
    return True


def _note_fork() -> None:
    global _forked_from_threads, _turn
    _forked_from_threads, _turn = _threads_started(), Lock()


_turn = Lock()
_forked_from_threads = False
if hasattr(os, "register_at_fork"):  # where processes fork
    os.register_at_fork(before=end_openmp_threads, after_in_child=_note_fork)
