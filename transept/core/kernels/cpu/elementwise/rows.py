"""Activations of rows, in place. Called by the feed-forward network."""

from __future__ import annotations

from torch import Tensor

from transept.core.kernels.activations import ACTIVATIONS
from transept.core.kernels.cpu.library import Int, KernelFunction, Pointer, pointer

_activate = KernelFunction("transept_activate", Pointer, Int, Int, Pointer, Int)


def activate(x: Tensor, bias: Tensor | None, activation: str) -> None:
    """Apply one of ACTIVATIONS to ``x + bias`` in place.

    x: float32 [rows, columns] on the CPU, contiguous. bias: float32 [columns].
    Raises IndexError for other shapes.
    """
    if x.dim() != 2 or not x.is_contiguous() or (bias is not None and bias.shape != x.shape[1:]):
        raise IndexError(f"rows of {[*x.shape]} take no bias of {None if bias is None else [*bias.shape]}")
    biases = None if bias is None else bias.contiguous()
    _activate(x.data_ptr(), *x.shape, pointer(biases), ACTIVATIONS[activation].number)
