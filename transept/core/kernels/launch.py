"""How a kernel is compiled, when it can run, and on how many threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import torch
from torch import Tensor

FAST_MATH = {"reassoc", "contract", "nsz", "arcp"}  # sums in any order; infinities and NaNs keep their meaning
EXACT = {"contract"}  # a product may be added without being rounded before


def kernel(*, parallel: bool = False, exact: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function as it is first called, and keep the result on disk where a folder for that can be written.

    exact: with EXACT instead of FAST_MATH. Divisions by zero are infinite: a check would keep loops from becoming
    vector instructions.
    """
    options: dict[str, Any] = {
        "parallel": parallel,
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
    """Let this thread's kernels run on as many threads as PyTorch's operators do now."""
    num_threads = torch.get_num_threads()
    numba.set_num_threads(min(num_threads, numba.config.NUMBA_NUM_THREADS))  # type: ignore[attr-defined]
    if torch.get_num_threads() != num_threads:
        torch.set_num_threads(num_threads)  # Numba's pool starts on all cores, and PyTorch's is the same one


match_threads()  # starts Numba's pool, before any kernel could
