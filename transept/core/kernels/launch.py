"""When a kernel can run, and on how many threads."""

from __future__ import annotations

import numba
import torch
from torch import Tensor

# What a compiler may do to sums. Infinities and NaNs keep their meaning.
FAST_MATH = {"reassoc", "contract", "nsz", "arcp"}


def runs_on(tensor: Tensor) -> bool:
    """Whether a tensor is float32 on the CPU, as all that goes to a kernel with it must be."""
    return tensor.dtype is torch.float32 and tensor.is_cpu


def match_threads() -> None:
    """Let this thread's kernels run on as many threads as PyTorch's operators do now."""
    numba.set_num_threads(min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS))  # type: ignore[attr-defined]
