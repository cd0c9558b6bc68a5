"""Activation functions by the names that config.json uses: PyTorch's, and the number by which kernels know each."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor
from torch.nn import functional as F


class Activation(NamedTuple):
    """function: elementwise on any shape. number: in cpu/elementwise/rows.h."""

    function: Callable[[Tensor], Tensor]
    number: int


def _gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


ACTIVATIONS = {
    "gelu": Activation(F.gelu, 0),
    "gelu_new": Activation(_gelu_tanh, 1),
    "gelu_pytorch_tanh": Activation(_gelu_tanh, 1),
    "relu": Activation(F.relu, 2),
    "silu": Activation(F.silu, 3),
    "swish": Activation(F.silu, 3),
    "tanh": Activation(Tensor.tanh, 4),
}
