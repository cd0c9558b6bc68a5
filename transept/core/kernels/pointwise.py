"""Functions of single numbers and of single rows, for the other kernels: exp, activations, norms, sums.

exp and the activations are polynomials, which the compiler turns into vector instructions; a call of the C library's
exp for each number would take as long as the product before it. All are within 2e-7 of the exact value, relative to 1
or to the value itself.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import prange

from transept.core.kernels.launch import kernel

# The activations that kernels know, by the names that config.json uses.
GELU, GELU_TANH, RELU, SILU, TANH = range(5)
ACTIVATIONS = {
    "gelu": GELU,
    "gelu_new": GELU_TANH,
    "gelu_pytorch_tanh": GELU_TANH,
    "relu": RELU,
    "silu": SILU,
    "swish": SILU,
    "tanh": TANH,
}
TO_INTEGER = np.float32(12582912)  # 1.5 · 2**23: a float32 to which it is added is rounded, its last bits the integer
CHUNK = 512  # numbers of a row that one piece of work activates


@kernel(exact=True)  # ln 2 is subtracted in two steps
def exp(x: np.float32) -> np.float32:
    """E to the x, for x from -87 to 88 and as at these bounds beyond them (Moshier's Cephes library, expf)."""
    x = min(max(x, np.float32(-87)), np.float32(88))
    power = np.floor(x * np.float32(1.44269504088896341) + np.float32(0.5))
    rest = x - power * np.float32(0.693359375) + power * np.float32(2.12194440e-4)
    value = np.float32(1.9875691500e-4)
    value = value * rest + np.float32(1.3981999507e-3)
    value = value * rest + np.float32(8.3334519073e-3)
    value = value * rest + np.float32(4.1665795894e-2)
    value = value * rest + np.float32(1.6666665459e-1)
    value = value * rest + np.float32(5.0000001201e-1)
    value = value * rest * rest + rest + np.float32(1)
    return value * np.int32((np.int32(power) + np.int32(127)) << np.int32(23)).view(np.float32)


@kernel(exact=True)
def erf(x: np.float32) -> np.float32:
    """The error function, by Abramowitz and Stegun's formula 7.1.26."""
    size = abs(x)
    t = np.float32(1) / (np.float32(1) + np.float32(0.3275911) * size)
    value = np.float32(1.061405429)
    value = value * t - np.float32(1.453152027)
    value = value * t + np.float32(1.421413741)
    value = value * t - np.float32(0.284496736)
    value = value * t + np.float32(0.254829592)
    value = np.float32(1) - value * t * exp(-size * size)
    return value if x >= 0 else -value


@kernel(exact=True)
def tanh(x: np.float32) -> np.float32:
    """The hyperbolic tangent, from exp."""
    return np.float32(1) - np.float32(2) / (exp(np.float32(2) * x) + np.float32(1))


@kernel(parallel=True)
def activate(x: npt.NDArray[np.float32], bias: npt.NDArray[np.float32], kind: int) -> None:
    """Apply an activation to ``x + bias`` in place. x: [rows, columns], bias: [columns], or empty for none."""
    columns = x.shape[1]
    pieces = (columns + CHUNK - 1) // CHUNK
    for piece in prange(pieces * x.shape[0]):
        start = piece % pieces * CHUNK
        part = x[piece // pieces, start : min(start + CHUNK, columns)]
        if bias.size:
            _add_row(part, bias[start : start + CHUNK])
        # A loop each, in a function of its own: only so are they vector instructions.
        if kind == GELU:
            _gelu(part)
        elif kind == GELU_TANH:
            _gelu_tanh(part)
        elif kind == RELU:
            _relu(part)
        elif kind == SILU:
            _silu(part)
        else:
            _tanh(part)


@kernel()
def _add_row(x: npt.NDArray[np.float32], other: npt.NDArray[np.float32]) -> None:
    for i in range(len(x)):
        x[i] += other[i]


@kernel()
def _gelu(x: npt.NDArray[np.float32]) -> None:
    for i in range(len(x)):
        x[i] = np.float32(0.5) * x[i] * (np.float32(1) + erf(x[i] * np.float32(0.7071067811865476)))


@kernel()
def _gelu_tanh(x: npt.NDArray[np.float32]) -> None:
    for i in range(len(x)):
        cubic = x[i] + np.float32(0.044715) * x[i] * x[i] * x[i]
        x[i] = np.float32(0.5) * x[i] * (np.float32(1) + tanh(np.float32(0.7978845608028654) * cubic))


@kernel()
def _relu(x: npt.NDArray[np.float32]) -> None:
    for i in range(len(x)):
        x[i] = max(x[i], np.float32(0))


@kernel()
def _silu(x: npt.NDArray[np.float32]) -> None:
    for i in range(len(x)):
        x[i] = x[i] / (np.float32(1) + exp(-x[i]))


@kernel()
def _tanh(x: npt.NDArray[np.float32]) -> None:
    for i in range(len(x)):
        x[i] = tanh(x[i])


@kernel()
def normalize(
    x: npt.NDArray[np.float32],
    weight: npt.NDArray[np.float32],
    bias: npt.NDArray[np.float32],
    epsilon: float,
    out: npt.NDArray[np.float32],
) -> None:
    """Layer norm of each row of [rows, columns] into out; without a bias RMS norm, which subtracts no mean."""
    columns = x.shape[1]
    for r in range(len(x)):
        mean = np.float32(0)
        if bias.size:
            for i in range(columns):
                mean += x[r, i]
            mean /= np.float32(columns)
        squares = np.float32(0)
        for i in range(columns):
            difference = x[r, i] - mean
            squares += difference * difference
        scale = np.float32(1) / np.sqrt(squares / np.float32(columns) + np.float32(epsilon))
        for i in range(columns):
            out[r, i] = (x[r, i] - mean) * scale * weight[i]
        if bias.size:
            for i in range(columns):
                out[r, i] += bias[i]


@kernel()
def add(x: npt.NDArray[np.float32], other: npt.NDArray[np.float32]) -> None:
    """Add one [rows, columns] to another, in place."""
    for r in range(x.shape[0]):
        for i in range(x.shape[1]):
            x[r, i] += other[r, i]


@kernel()
def multiply(x: npt.NDArray[np.float32], other: npt.NDArray[np.float32]) -> None:
    """Multiply one [rows, columns] with another, in place."""
    for r in range(x.shape[0]):
        for i in range(x.shape[1]):
            x[r, i] *= other[r, i]


@kernel()
def copy(x: npt.NDArray[np.float32], out: npt.NDArray[np.float32]) -> None:
    """One [rows, columns] into another. (An assignment to a slice would take seconds to compile.)"""
    for r in range(x.shape[0]):
        for i in range(x.shape[1]):
            out[r, i] = x[r, i]
