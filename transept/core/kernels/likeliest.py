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
from transept.core.kernels.vectors import highest

Floats = npt.NDArray[np.float32]
PIECE = 4096  # logits


def likeliest(logits: Tensor) -> tuple[Tensor, Tensor]:
    """logits: [rows, vocabulary], float32 on the CPU. Returns of each row the token (the first of equals) and its log
    probability, [rows, 1] each, int64 and float32.
    """
    tokens, logprobs = np.empty(len(logits), np.int64), np.empty(len(logits), np.float32)
    _likeliest(logits.contiguous().numpy(), tokens, logprobs)
    return torch.from_numpy(tokens[:, None]), torch.from_numpy(logprobs[:, None])


@kernel(parallel=True)
def _likeliest(logits: Floats, tokens: npt.NDArray[np.int64], logprobs: Floats) -> None:
    num_rows, size = logits.shape
    pieces = (size + PIECE - 1) // PIECE
    tops = np.empty((num_rows, pieces), np.float32)  # a piece's highest logit
    sums = np.empty((num_rows, pieces), np.float32)  # the sum of exp(logit - that)
    for job in prange(num_rows * pieces):
        row, piece = job // pieces, job % pieces
        _sum_piece(logits[row], piece * PIECE, min((piece + 1) * PIECE, size), tops[row], sums[row], piece)
    for row in range(num_rows):
        _join(logits[row], tops[row], sums[row], tokens, logprobs, row)


@kernel()
def _sum_piece(logits: Floats, first: int, stop: int, tops: Floats, sums: Floats, piece: int) -> None:
    top = highest(logits, first, stop - first)
    total = np.float32(0)
    if top > -np.inf:
        for i in range(first, stop):
            total += exp(logits[i] - top)
    tops[piece], sums[piece] = top, total


@kernel()
def _join(
    logits: Floats, tops: Floats, sums: Floats, tokens: npt.NDArray[np.int64], logprobs: Floats, row: int
) -> None:
    best = 0
    for piece in range(len(tops)):
        if tops[piece] > tops[best]:
            best = piece
    total = np.float32(0)
    for piece in range(len(tops)):
        total += sums[piece] * exp(tops[piece] - tops[best])
    token = best * PIECE
    while logits[token] != tops[best] and token < len(logits) - 1:  # a row of NaNs has no such token
        token += 1
    tokens[row], logprobs[row] = token, -np.log(total)
