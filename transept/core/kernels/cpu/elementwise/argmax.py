"""The highest logit of each row and its log probability, in two passes over the row.

Called by the sampler. PyTorch's argmax and log_softmax pass over a row of 50,000 logits six times.
"""

from __future__ import annotations

import torch
from torch import Tensor

from transept.core.kernels.cpu.library import Int, KernelFunction, Pointer

_argmax = KernelFunction("transept_argmax", Pointer, Int, Int, Pointer, Pointer)


def argmax(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Return the token of each row's highest logit, the first of equals, and its log probability.

    logits: float32 [rows, vocabulary] on the CPU. Returns int64 and float32, [rows, 1] each. Raises IndexError for an
    empty vocabulary.
    """
    num_rows, size = logits.shape
    if not size:
        raise IndexError("rows without logits have no highest one")
    logits = logits.contiguous()
    tokens = torch.empty(num_rows, 1, dtype=torch.int64)
    logprobs = torch.empty(num_rows, 1, dtype=torch.float32)
    _argmax(logits.data_ptr(), num_rows, size, tokens.data_ptr(), logprobs.data_ptr())
    return tokens, logprobs
