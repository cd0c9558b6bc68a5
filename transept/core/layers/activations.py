"""Activation functions by the names that config.json uses."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional as F

from transept.errors import CheckpointError

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_pytorch_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
    "swish": F.silu,
    "tanh": lambda x: x.tanh(),
}


def get_activation(name: str) -> Callable[[Tensor], Tensor]:
    """The function that a config names, elementwise on any shape. Raises CheckpointError for an unknown name."""
    if name not in _ACTIVATIONS:
        raise CheckpointError(f'the config asks for activation "{name}"; known: {", ".join(sorted(_ACTIVATIONS))}')
    return _ACTIVATIONS[name]
