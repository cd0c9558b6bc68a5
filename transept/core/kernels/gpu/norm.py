"""Two sublayers' sum and its norm on a GPU, each row read and written once. Called by `transept.core.layers.norm`."""

from __future__ import annotations

import torch
from torch import Tensor


def sum_and_norm(
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
    """``x + y``, empty unless it is kept, and the norm of it.

    x, y: [tokens, hidden], as are both results. weight, bias: [hidden]. weight_offset: added to an RMS norm's weight.
    addend: [hidden], added to the sum that is kept only. subtracts_mean: layer norm, else RMS norm.
    """
    from transept.core.kernels.gpu import norm_kernel as kernels

    size = x.shape[-1]
    dtype = x.dtype if y is None else torch.promote_types(x.dtype, y.dtype)
    total = torch.empty(x.shape if keep_total else (0,), dtype=dtype, device=x.device)
    normed = torch.empty(x.shape, dtype=dtype if subtracts_mean else weight.dtype, device=x.device)
    if len(x):
        columns = 1 << (size - 1).bit_length()
        kernels.add_and_normalize[len(x),](
            *(x.contiguous(), x if y is None else y.contiguous(), weight, weight if bias is None else bias),
            *(weight if addend is None else addend, total, normed, size, eps),
            HAS_Y=y is not None,
            KEEPS_TOTAL=keep_total,
            SUBTRACTS_MEAN=subtracts_mean,
            HAS_BIAS=bias is not None,
            HAS_ADDEND=addend is not None,
            WEIGHT_OFFSET=weight_offset,
            COLUMNS=columns,
            num_warps=8 if columns > 1024 else 4,
        )
    return total, normed
