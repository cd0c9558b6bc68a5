"""Norms, and the sum of a sublayer with what it was given together with the norm that follows."""

from __future__ import annotations

import math
from functools import cache
from importlib.util import find_spec
from typing import TypeGuard, cast

import torch
from torch import Tensor, nn

from transept.core.kernels.dispatch import NORM
from transept.errors import CheckpointError


class RMSNorm(nn.Module):
    """``x / √(mean(x²) + eps) · weight`` (Zhang and Sennrich 2019): neither mean nor bias.

    The variance is taken in float32 and the result is in the weight's dtype, so that x may be a float32 residual of a
    model in half precision. weight_offset: added to the weight; 1 in Gemma, whose result is rounded after it is
    multiplied by the weight, not before.

    Raises CheckpointError for an eps that is no number from 0 up.
    """

    def __init__(self, hidden_size: int, eps: float = 1e-6, weight_offset: float = 0.0) -> None:
        super().__init__()
        if isinstance(eps, bool) or not isinstance(eps, int | float) or not 0 <= eps < math.inf:
            raise CheckpointError(f"the eps of a norm must be a number from 0 up, not {eps!r}")
        self.weight = nn.Parameter(torch.empty(hidden_size), requires_grad=False)
        self.eps, self.weight_offset = eps, weight_offset

    def forward(self, x: Tensor) -> Tensor:
        """x: [tokens, hidden]. Returns the same shape."""
        if _in_one_kernel(self, x):
            return launch(x, None, self)[1]
        x32 = x.float()
        normed = x32 * torch.rsqrt(x32.square().mean(-1, keepdim=True) + self.eps)
        if self.weight_offset:
            return (normed * (self.weight_offset + self.weight.float())).to(self.weight.dtype)
        return self.weight * normed.to(self.weight.dtype)


def norm_of(x: Tensor, norm: nn.Module) -> Tensor:
    """The norm of x: [tokens, hidden], as is the result."""
    return launch(x, None, norm)[1] if _in_one_kernel(norm, x) else cast(Tensor, norm(x))


def add_norm(x: Tensor, y: Tensor, norm: nn.Module, addend: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """``x + y + addend`` and the norm of ``x + y``; x, y: [tokens, hidden], as are both results, addend: [hidden]."""
    if _in_one_kernel(norm, x):
        return launch(x, y, norm, keep_total=True, addend=addend)
    total = x + y
    return total if addend is None else total + addend, norm(total)


def norm_of_sum(x: Tensor, y: Tensor, norm: nn.Module) -> Tensor:
    """The norm of ``x + y``; x, y: [tokens, hidden], as is the result."""
    return launch(x, y, norm)[1] if _in_one_kernel(norm, x) else norm(x + y)


def launch(
    x: Tensor,
    y: Tensor | None,
    norm: nn.LayerNorm | RMSNorm,
    *,
    keep_total: bool = False,
    addend: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """As `add_norm`, by a kernel that reads and writes each row once; the sum is empty unless it is kept."""
    subtracts_mean = isinstance(norm, nn.LayerNorm)
    bias, offset = (norm.bias, 0.0) if isinstance(norm, nn.LayerNorm) else (None, norm.weight_offset)
    return NORM.only(
        *(x, y, norm.weight, bias, norm.eps),
        weight_offset=offset,
        subtracts_mean=subtracts_mean,
        keep_total=keep_total,
        addend=addend,
    )


def _in_one_kernel(norm: nn.Module, x: Tensor) -> TypeGuard[nn.LayerNorm | RMSNorm]:
    """Whether `launch` serves: on a GPU, for norms of rows that have a weight, and none derived from them."""
    if not x.is_cuda or not _has_triton():
        return False
    if type(norm) is nn.LayerNorm:
        return norm.weight is not None and len(norm.normalized_shape) == 1
    return type(norm) is RMSNorm


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None
