"""The activations against PyTorch's in float64. Norms and sums are those of the layers' tests."""

import pytest
import torch
from torch.nn import functional as F

from transept.core.kernels.activations import ACTIVATIONS
from transept.core.kernels.cpu.elementwise.rows import activate
from transept.core.layers.activations import get_activation

NUMBERS = torch.cat([torch.linspace(-12, 12, 20_001), torch.tensor([-1e30, -88.0, -0.0, 1e-30, 88.0])])


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str) -> None:
    x = NUMBERS.clone() if name != "gelu_new" else NUMBERS.clamp(-1e9, 1e9)  # the cube is finite
    expected = get_activation(name)(x.double())
    rows = torch.stack([x, x.flip(0)])
    activate(rows, None, name)
    torch.testing.assert_close(rows[0].double(), expected, rtol=1e-6, atol=4e-7)
    torch.testing.assert_close(rows[1], rows[0].flip(0), rtol=0, atol=0)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_what_is_not_a_number_stays_so(name: str) -> None:
    x = torch.ones(2, 19)
    x[1, 3] = x[0, 18] = float("nan")
    activate(x, None, name)
    assert x.isnan().nonzero().tolist() == [[0, 18], [1, 3]]


def test_activation_of_a_sum() -> None:
    torch.manual_seed(0)
    x, bias = torch.randn(3, 1300), torch.randn(1300)
    expected = F.gelu(x.double() + bias.double())
    activate(x, bias, "gelu")
    torch.testing.assert_close(x.double(), expected, rtol=1e-6, atol=4e-7)


def test_other_shapes_are_refused() -> None:
    with pytest.raises(IndexError, match=r"rows of \[3, 8\] take no bias of \[7\]"):
        activate(torch.zeros(3, 8), torch.zeros(7), "gelu")
    with pytest.raises(IndexError, match="rows of"):
        activate(torch.zeros(8, 3).t(), None, "gelu")
