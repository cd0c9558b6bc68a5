"""The sum of two sublayers and its norm on a CPU, in one pass over each row. Called by `transept.core.layers.norm`."""

from __future__ import annotations

import torch
from torch import Tensor

from transept.core.kernels.cpu.library import Float, Int, KernelFunction, Pointer, pointer

_add_and_norm = KernelFunction("transept_add_and_norm", *[Pointer] * 5, Float, Int, Int, Pointer, Pointer)


def add_and_norm(
    x: Tensor,
    y: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    eps: float,
    *,
    weight_offset: float = 0.0,
    subtracts_mean: bool,
    keep_total: bool,
    addend: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute kernels/gpu/norm.py in float32. A layer norm has a bias. Raises IndexError for other shapes."""
    rows, size = x.shape
    others = (weight, bias, addend)
    given = [part for part in (x, y, *others) if part is not None]
    fit = all(len(part) == size for part in others if part is not None) and (y is None or y.shape == x.shape)
    if not fit or any(part.dtype is not torch.float32 or not part.is_cpu for part in given):
        shapes = ", ".join(f"{[*part.shape]} in {part.dtype} on {part.device}" for part in given)
        raise IndexError(f"sum and norm of tensors that do not fit: {shapes}")
    if subtracts_mean is (bias is None):
        raise ValueError("a layer norm has a bias here, and an RMS norm has none")
    if weight_offset:
        weight = weight + weight_offset
    parts = [None if part is None else part.contiguous() for part in (x, y, addend, weight, bias)]
    total = torch.empty(rows if keep_total else 0, size, dtype=torch.float32)
    normed = torch.empty(rows, size, dtype=torch.float32)
    addresses = map(pointer, parts)
    _add_and_norm(*addresses, eps, rows, size, pointer(total if keep_total else None), normed.data_ptr())
    return total, normed
