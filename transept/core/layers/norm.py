"""Normalisation without a mean."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RMSNorm(nn.Module):
    """``x / √(mean(x²) + eps) · weight`` (Zhang and Sennrich 2019): neither mean nor bias.

    The variance is taken in float32 and the result is in the weight's dtype, so that x may be a float32 residual of a
    model in half precision.
    """

    def __init__(self, hidden_size: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(hidden_size), requires_grad=False)
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """x: [tokens, hidden]. Returns the same shape."""
        x32 = x.float()
        normed = x32 * torch.rsqrt(x32.square().mean(-1, keepdim=True) + self.eps)
        return self.weight * normed.to(self.weight.dtype)
