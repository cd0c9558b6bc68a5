"""Activations against transformers' table of the same names."""

import pytest
import torch
from transformers.activations import ACT2FN

from transept.core.layers.activations import get_activation
from transept.errors import CheckpointError


@pytest.mark.parametrize("name", ["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu", "swish", "tanh"])
def test_activation_is_that_of_transformers(name: str) -> None:
    x = torch.linspace(-8, 8, 1001)
    torch.testing.assert_close(get_activation(name)(x), ACT2FN[name](x), rtol=1e-6, atol=1e-6)


def test_an_unknown_activation_is_refused_with_the_known_ones() -> None:
    with pytest.raises(CheckpointError, match=r'activation "gelo"; known: gelu, gelu_new, .*tanh'):
        get_activation("gelo")
