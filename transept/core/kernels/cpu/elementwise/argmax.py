"""The highest logit of each row, with its log probability, in two readings of the row.

Called by the sampler. PyTorch's argmax and log_softmax read and write a row of 50,000 logits six times.
"""

from __future__ import annotations

import torch
from torch import Tensor

from transept.core.kernels.cpu.library import Int, KernelFunction, Pointer

_argmax = KernelFunction("transept_argmax", Pointer, Int, Int, Pointer, Pointer)


def argmax(logits: Tensor) -> tuple[Tensor, Tensor]:
    """logits: [rows, vocabulary], float32 on the CPU, with a vocabulary of at least 1.

    Returns of each row the token (the first of equals) and its log probability, [rows, 1] each, int64 and float32.
    """
    num_rows, size = logits.shape
    if not size:
        raise IndexError("rows without logits have no highest one")
    logits = logits.contiguous()
    tokens = torch.empty(num_rows, 1, dtype=torch.int64)
    logprobs = torch.empty(num_rows, 1, dtype=torch.float32)
    _argmax(logits.data_ptr(), num_rows, size, tokens.data_ptr(), logprobs.data_ptr())
    return tokens, logprobs
