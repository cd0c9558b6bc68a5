"""The likeliest token of each row of logits, with its log probability, in two readings of the row.

Called by the sampler. PyTorch's argmax and log_softmax read and write a row of 50,000 logits six times.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from numba import prange
from torch import Tensor

from transept.core.kernels.launch import kernel
from transept.core.kernels.pointwise import exp

PIECE = 4096  # logits


def likeliest(logits: Tensor) -> tuple[Tensor, Tensor]:
    """logits: [rows, vocabulary], float32 on the CPU. Returns of each row the token (the first of equals) and its log
    probability, [rows, 1] each, int64 and float32.
    """
    tokens, logprobs = np.empty(len(logits), np.int64), np.empty(len(logits), np.float32)
    _likeliest(logits.contiguous().numpy(), tokens, logprobs)
    return torch.from_numpy(tokens[:, None]), torch.from_numpy(logprobs[:, None])


@kernel(parallel=True)
def _likeliest(
    logits: npt.NDArray[np.float32], tokens: npt.NDArray[np.int64], logprobs: npt.NDArray[np.float32]
) -> None:
    num_rows, size = logits.shape
    pieces = (size + PIECE - 1) // PIECE
    tops = np.empty((num_rows, pieces), np.float32)  # a piece's highest logit
    sums = np.empty((num_rows, pieces), np.float32)  # the sum of exp(logit - that)
    for job in prange(num_rows * pieces):
        row, piece = job // pieces, job % pieces
        part = logits[row, piece * PIECE : min((piece + 1) * PIECE, size)]
        top = np.float32(-np.inf)
        for i in range(len(part)):
            top = max(top, part[i])
        total = np.float32(0)
        if top > -np.inf:
            for i in range(len(part)):
                total += exp(part[i] - top)
        tops[row, piece], sums[row, piece] = top, total
    for row in range(num_rows):
        best = np.argmax(tops[row])
        top = tops[row, best]
        total = np.float32(0)
        for piece in range(pieces):
            total += sums[row, piece] * np.exp(tops[row, piece] - top)
        token = best * PIECE
        while logits[row, token] != top and token < size - 1:  # a row of NaNs has no such token
            token += 1
        tokens[row], logprobs[row] = token, -np.log(total)
