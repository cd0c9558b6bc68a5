"""exp, the activations and the norms against PyTorch's in float64."""

from collections.abc import Callable

import numba
import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from transept.core.kernels.pointwise import ACTIVATIONS, activate, exp, normalize
from transept.core.layers.activations import get_activation

NUMBERS = torch.cat([torch.linspace(-12, 12, 20_001), torch.tensor([-1e30, -88.0, -0.0, 1e-30, 88.0])])


@numba.njit
def of_each(function: Callable[[float], float], x: np.ndarray) -> np.ndarray:
    out = np.empty_like(x)
    for i in range(len(x)):
        out[i] = function(x[i])
    return out


def test_exp_is_within_two_units_in_the_last_place() -> None:
    x = np.linspace(-87, 88, 1_000_001, dtype=np.float32)
    expected = np.exp(x.astype(np.float64))
    assert np.abs(of_each(exp, x) / expected - 1).max() < 2.4e-7


def test_exp_of_what_a_softmax_hides_is_nothing() -> None:
    assert (of_each(exp, np.array([-100, -1e30, -np.inf], np.float32)) < 1e-37).all()


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str) -> None:
    x = NUMBERS.clone() if name != "gelu_new" else NUMBERS.clamp(-1e9, 1e9)  # the cube is finite
    expected = get_activation(name)(x.double())
    rows = torch.stack([x, x.flip(0)])
    activate(rows.numpy(), np.empty(0, np.float32), ACTIVATIONS[name])
    torch.testing.assert_close(rows[0].double(), expected, rtol=1e-6, atol=4e-7)
    torch.testing.assert_close(rows[1], rows[0].flip(0), rtol=0, atol=0)


def test_activation_of_a_sum() -> None:
    torch.manual_seed(0)
    x, bias = torch.randn(3, 1300), torch.randn(1300)
    expected = F.gelu(x.double() + bias.double())
    activate(x.numpy(), bias.numpy(), ACTIVATIONS["gelu"])
    torch.testing.assert_close(x.double(), expected, rtol=1e-6, atol=4e-7)


def normalized(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    out = torch.empty_like(x)
    normalize(x.numpy(), weight.numpy(), bias.numpy(), 1e-5, out.numpy())
    return out.double()


def test_norms() -> None:
    torch.manual_seed(0)
    x, weight, bias = 5 * torch.randn(7, 384) + 20, torch.randn(384), torch.randn(384)
    layer_norm = F.layer_norm(x.double(), (384,), weight.double(), bias.double())
    torch.testing.assert_close(normalized(x, weight, bias), layer_norm, rtol=1e-5, atol=2e-5)
    rms_norm = F.rms_norm(x.double(), (384,), weight.double(), eps=1e-5)
    torch.testing.assert_close(normalized(x, weight, torch.empty(0)), rms_norm, rtol=1e-5, atol=1e-6)
