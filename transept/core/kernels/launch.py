"""When a kernel can run, and on how many threads."""

from __future__ import annotations

import numba
import torch
from torch import Tensor

# What a compiler may do to sums. Infinities and NaNs keep their meaning.
FAST_MATH = {"reassoc", "contract", "nsz", "arcp"}


def runs_on(*tensors: Tensor) -> bool:
    """Whether all are float32 on the CPU, which the kernels read."""
    return all(tensor.dtype is torch.float32 and tensor.device.type == "cpu" for tensor in tensors)


def match_threads() -> None:
    """Let this thread's next kernel run on as many threads as PyTorch's operators."""
    numba.set_num_threads(min(torch.get_num_threads(), numba.config.NUMBA_NUM_THREADS))  # type: ignore[attr-defined]
