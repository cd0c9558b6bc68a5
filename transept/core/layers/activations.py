"""Activation functions by the names that config.json uses."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from transept.core.kernels.dispatch import ACTIVATIONS
from transept.errors import CheckpointError


def get_activation(name: str) -> Callable[[Tensor], Tensor]:
    """Return the activation with a config's name, elementwise on any shape. Raises CheckpointError if it is unknown."""
    if name not in ACTIVATIONS:
        raise CheckpointError(f'the config asks for activation "{name}"; known: {", ".join(sorted(ACTIVATIONS))}')
    return ACTIVATIONS[name].function
