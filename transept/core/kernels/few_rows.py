"""``x @ weight.T + bias`` for x of few rows, at the speed at which the weight is read.

Called by `transept.core.layers.linear.matmul` and by `decoder_layer`. The weight is float32, or float16 that is widened
as it is read, which halves the time. docs/performance.md has the figures.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from numba import prange
from torch import Tensor, nn

from transept.core.kernels.float16 import Matrix, widen
from transept.core.kernels.launch import kernel

MOST_ROWS = 64  # beyond, MKL is as fast
NO_BIAS = np.empty(0, np.float32)
ALL = slice(None)
CHUNK = 504  # outputs of a piece of work, or an eighth of them where there are few; divisible by 3


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, outputs: slice = ALL) -> Tensor:
    """x: [rows, in], weight: [out, in], bias: [out], on the CPU. outputs: which of them are computed.

    All are float32; the weight may be float16. Returns [rows, out].
    """
    weights, biases = array_of(weight)[outputs], NO_BIAS if bias is None else array_of(bias)[outputs]
    out = torch.empty(x.shape[0], len(weights))
    product(x.contiguous().numpy(), weights, biases, out.numpy())
    return out


def array_of(tensor: Tensor) -> Matrix:
    """The tensor as an array, float16 as its bits. A parameter keeps it: making it takes as long as a small product."""
    known = getattr(tensor, "_array", None)
    if known is None or known[0] != tensor.data_ptr():
        array = tensor.detach().numpy()
        known = (tensor.data_ptr(), array.view(np.uint16) if array.dtype == np.float16 else array)
        if isinstance(tensor, nn.Parameter):
            tensor._array = known  # type: ignore[attr-defined]
    return known[1]


@kernel(parallel=True)
def product(
    x: npt.NDArray[np.float32],
    weight: Matrix,
    bias: npt.NDArray[np.float32],
    out: npt.NDArray[np.float32],
) -> None:
    """`linear` for arrays; bias is NO_BIAS where there is none."""
    # With up to 8 rows memory is the limit: one output after the other is a single stream, which the processor fetches
    # ahead. With more the arithmetic is the limit, and a number that is read must serve more than one sum: there are
    # twelve at a time, of three outputs and four rows, as many as the registers of AVX2 hold. The outputs' weights are
    # copied to where they stay in the cache, widened once for all rows.
    num_rows, num_in = x.shape
    num_out = weight.shape[0]
    chunk = min(CHUNK, max(num_out // 24, 1) * 3)
    for piece in prange((num_out + chunk - 1) // chunk):
        stop = min((piece + 1) * chunk, num_out)
        o = piece * chunk
        three = np.empty((3, num_in), np.float32)
        while o + 3 <= stop and num_rows > 8:
            for j in range(3):
                for i in range(num_in):
                    three[j, i] = widen(weight[o + j, i])
            r = 0
            while r + 4 <= num_rows:
                a0 = a1 = a2 = a3 = b0 = b1 = b2 = b3 = c0 = c1 = c2 = c3 = np.float32(0)
                for i in range(num_in):
                    a, b, c = three[0, i], three[1, i], three[2, i]
                    value = x[r, i]
                    a0 += a * value
                    b0 += b * value
                    c0 += c * value
                    value = x[r + 1, i]
                    a1 += a * value
                    b1 += b * value
                    c1 += c * value
                    value = x[r + 2, i]
                    a2 += a * value
                    b2 += b * value
                    c2 += c * value
                    value = x[r + 3, i]
                    a3 += a * value
                    b3 += b * value
                    c3 += c * value
                out[r, o], out[r + 1, o], out[r + 2, o], out[r + 3, o] = a0, a1, a2, a3
                out[r, o + 1], out[r + 1, o + 1], out[r + 2, o + 1], out[r + 3, o + 1] = b0, b1, b2, b3
                out[r, o + 2], out[r + 1, o + 2], out[r + 2, o + 2], out[r + 3, o + 2] = c0, c1, c2, c3
                r += 4
            while r < num_rows:
                a0 = b0 = c0 = np.float32(0)
                for i in range(num_in):
                    value = x[r, i]
                    a0 += three[0, i] * value
                    b0 += three[1, i] * value
                    c0 += three[2, i] * value
                out[r, o], out[r, o + 1], out[r, o + 2] = a0, b0, c0
                r += 1
            o += 3
        while o < stop:
            r = 0
            while r + 8 <= num_rows:
                a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = np.float32(0)
                for i in range(num_in):
                    a = widen(weight[o, i])
                    a0 += a * x[r, i]
                    a1 += a * x[r + 1, i]
                    a2 += a * x[r + 2, i]
                    a3 += a * x[r + 3, i]
                    a4 += a * x[r + 4, i]
                    a5 += a * x[r + 5, i]
                    a6 += a * x[r + 6, i]
                    a7 += a * x[r + 7, i]
                out[r, o], out[r + 1, o], out[r + 2, o], out[r + 3, o] = a0, a1, a2, a3
                out[r + 4, o], out[r + 5, o], out[r + 6, o], out[r + 7, o] = a4, a5, a6, a7
                r += 8
            while r + 4 <= num_rows:
                a0 = a1 = a2 = a3 = np.float32(0)
                for i in range(num_in):
                    a = widen(weight[o, i])
                    a0 += a * x[r, i]
                    a1 += a * x[r + 1, i]
                    a2 += a * x[r + 2, i]
                    a3 += a * x[r + 3, i]
                out[r, o], out[r + 1, o], out[r + 2, o], out[r + 3, o] = a0, a1, a2, a3
                r += 4
            while r + 2 <= num_rows:
                a0 = a1 = np.float32(0)
                for i in range(num_in):
                    a = widen(weight[o, i])
                    a0 += a * x[r, i]
                    a1 += a * x[r + 1, i]
                out[r, o], out[r + 1, o] = a0, a1
                r += 2
            if r < num_rows:
                a0 = np.float32(0)
                for i in range(num_in):
                    a0 += widen(weight[o, i]) * x[r, i]
                out[r, o] = a0
            o += 1
        if bias.size:
            for r in range(num_rows):
                for o in range(piece * chunk, stop):
                    out[r, o] += bias[o]
