"""A gated linear unit and a depthwise convolution over time. Called by the Conformer's convolution module."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from transept.core.kernels.activations import ACTIVATIONS
from transept.core.kernels.cpu.library import Int, KernelFunction, Pointer, pointer

_convolve = KernelFunction(
    "transept_gate_and_convolve", Pointer, Pointer, Int, Int, Pointer, Pointer, Int, Int, Int, Pointer
)


def gate_and_convolve(
    x: Tensor, starts: Sequence[int], weight: Tensor, bias: Tensor | None, before: int, activation: str | None
) -> Tensor:
    """Return ``act(conv(values · sigmoid(gates)))`` of sequences, each padded with zeros.

    x: float32 [tokens, 2 · channels], contiguous: values, then gates. Sequence i has the tokens ``starts[i] :
    starts[i + 1]``. weight: float32 [taps, channels], contiguous; tap t is for the token t - before tokens after a
    token's own. bias: float32 [channels]. activation: one of ACTIVATIONS, or None.
    Returns [tokens, channels]. Raises IndexError for other shapes.
    """
    taps, channels = weight.shape
    fits = x.shape[1:] == (2 * channels,) and x.is_contiguous() and weight.is_contiguous() and starts[-1] == len(x)
    if not fits or (bias is not None and bias.shape != (channels,)):
        raise IndexError(f"rows of {[*x.shape]} take no convolution of {[*weight.shape]}")
    out = torch.empty(len(x), channels)
    bounds, number = torch.tensor(starts), -1 if activation is None else ACTIVATIONS[activation].number
    biases = None if bias is None else bias.contiguous()
    _convolve(
        *(x.data_ptr(), bounds.data_ptr(), len(starts) - 1, channels),
        *(weight.data_ptr(), pointer(biases), taps, before, number, out.data_ptr()),
    )
    return out
