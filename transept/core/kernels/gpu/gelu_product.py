"""A product with a bias and GELU in one kernel of cuBLASLt. Called by `transept.core.layers.feed_forward`."""

from __future__ import annotations

import torch
from torch import Tensor


def gelu_of_product(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """``gelu(x @ weight.T + bias)``; x: [rows, in], weight: [out, in], bias: [out]. Returns [rows, out].

    GELU has its form with tanh, up to 5e-4 from the exact one, and is applied before anything is rounded: in bfloat16
    the result is nearer to the exact one than what is rounded before and after an exact GELU.
    """
    return torch._addmm_activation(bias, x, weight.t(), use_gelu=True)
