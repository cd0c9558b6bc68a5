"""RMSNorm, and functions that compute a residual sum and the norm that follows in one kernel."""

from __future__ import annotations

import math
from functools import cache
from importlib.util import find_spec
from typing import cast

import torch
from torch import Tensor, nn

from transept.core.kernels.dispatch import NORM
from transept.errors import CheckpointError


class RMSNorm(nn.Module):
    """``x / √(mean(x²) + eps) · weight`` (Zhang and Sennrich 2019): neither mean nor bias.

    The variance is taken in float32 and the result is in the weight's dtype, so that x may be a float32 residual of a
    model in half precision.

    weight_offset: added to the weight; 1 in Gemma, whose result is rounded after it is multiplied by the weight, not
        before.

    Raises CheckpointError for an eps that is not a number of at least 0.
    """

    def __init__(self, hidden_size: int, eps: float = 1e-6, weight_offset: float = 0.0) -> None:
        super().__init__()
        if isinstance(eps, bool) or not isinstance(eps, int | float) or not 0 <= eps < math.inf:
            raise CheckpointError(f"the eps of a norm must be a number from 0 up, not {eps!r}")
        self.weight = nn.Parameter(torch.empty(hidden_size), requires_grad=False)
        self.eps, self.weight_offset = eps, weight_offset

    def forward(self, x: Tensor) -> Tensor:
        """x: [tokens, hidden]. Returns the same shape."""
        computed = _computed(self, x)
        if computed is not None:
            return computed[1]
        x32 = x.float()
        normed = x32 * torch.rsqrt(x32.square().mean(-1, keepdim=True) + self.eps)
        if self.weight_offset:
            return (normed * (self.weight_offset + self.weight.float())).to(self.weight.dtype)
        return self.weight * normed.to(self.weight.dtype)


def norm_of(x: Tensor, norm: nn.Module) -> Tensor:
    """Return the norm of x. x: [tokens, hidden], as is the result."""
    computed = _computed(norm, x)
    return cast(Tensor, norm(x)) if computed is None else computed[1]


def add_norm(x: Tensor, y: Tensor, norm: nn.Module, addend: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return ``x + y + addend`` and the norm of ``x + y``, both [tokens, hidden] like x and y. addend: [hidden]."""
    computed = _computed(norm, x, y, keep_total=True, addend=addend)
    if computed is not None:
        return computed
    total = x + y
    return total if addend is None else total + addend, norm(total)


def norm_of_sum(x: Tensor, y: Tensor, norm: nn.Module) -> Tensor:
    """Return the norm of ``x + y``. x, y: [tokens, hidden], as is the result."""
    computed = _computed(norm, x, y)
    return norm(x + y) if computed is None else computed[1]


def _computed(
    norm: nn.Module, x: Tensor, y: Tensor | None = None, *, keep_total: bool = False, addend: Tensor | None = None
) -> tuple[Tensor, Tensor] | None:
    """Compute `add_norm` by a kernel that reads and writes each row once. The sum is empty without `keep_total`.

    Returns None if no kernel serves. Kernels support rows [tokens, hidden], and LayerNorm and RMSNorm with a weight,
    but not their subclasses; on CPUs only in float32.
    """
    if x.dim() != 2:
        return None
    if type(norm) is nn.LayerNorm:
        weight, bias, offset = norm.weight, cast("Tensor | None", norm.bias), 0.0
        if weight is None or len(norm.normalized_shape) != 1 or (bias is None and x.is_cpu):
            return None
    elif type(norm) is RMSNorm:
        weight, bias, offset = norm.weight, None, norm.weight_offset
    else:
        return None
    if x.is_cpu:
        alike = y is None or (y.dtype is x.dtype and y.shape == x.shape)
        if not alike or any(part is not None and part.dtype is not x.dtype for part in (weight, bias, addend)):
            return None
    elif not (x.is_cuda and _has_triton()):
        return None
    kernel = NORM.serving(x)
    if kernel is None:
        return None
    return kernel(
        *(x, y, weight, bias, norm.eps),
        weight_offset=offset,
        subtracts_mean=type(norm) is nn.LayerNorm,
        keep_total=keep_total,
        addend=addend,
    )


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None
