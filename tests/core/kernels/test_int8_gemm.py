"""The product with a weight in int8 against PyTorch's in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from transept.core.kernels.cpu.gemm.panels import PANEL, pack_int8
from transept.core.kernels.cpu.gemm.product import product


def rounded(weight: Tensor) -> Tensor:
    """Each row as multiples of a 127th of its largest number, in float64."""
    steps = weight.double().abs().amax(1, keepdim=True) / 127
    return torch.where(steps > 0, (weight / steps).round() * steps, 0.0)


@settings(deadline=None)
@given(st.integers(1, 150), st.integers(1, 70), st.integers(1, 200), st.booleans())
def test_it_is_the_product(num_rows: int, num_in: int, num_out: int, with_bias: bool) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(num_rows, num_in), torch.randn(num_out, num_in)
    bias = torch.randn(num_out) if with_bias else None
    expected = x.double() @ rounded(weight).T + (0 if bias is None else bias.double())
    torch.testing.assert_close(product(x, pack_int8(weight), bias).double(), expected, rtol=0, atol=2e-3)


@pytest.mark.parametrize(("num_in", "steps"), [(64, 32767), (1024, 16513), (4096, 4128), (10240, 1651)])
def test_activations_are_rounded_to_as_many_steps_as_sums_have_room_for(num_in: int, steps: int) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(4, num_in), torch.randn(32, num_in)
    exact = (x.double() / x.abs().amax(1, keepdim=True) * steps).round() / steps * x.abs().amax(1, keepdim=True)
    torch.testing.assert_close(
        product(x, pack_int8(weight), None).double(), exact @ rounded(weight).T, rtol=1e-4, atol=1e-3
    )


@pytest.mark.parametrize("num_in", [2, 384, 1536, 16384])
def test_the_largest_numbers_do_not_overflow(num_in: int) -> None:
    weight = torch.full((16, num_in), 3.0)
    out = product(torch.full((7, num_in), -2.0), pack_int8(weight), None)
    torch.testing.assert_close(out, torch.full((7, 16), -6.0 * num_in))


@pytest.mark.parametrize("num_rows", [2, 5, 7, 64, 97, 300])
def test_a_row_is_the_same_to_the_last_bit_whatever_is_beside_it(num_rows: int) -> None:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(num_rows, 96), pack_int8(torch.randn(150, 96)), torch.randn(150)
    alone = torch.cat([product(row[None], weight, bias) for row in x])
    assert torch.equal(product(x, weight, bias), alone)


def test_rows_of_zeros_stay_so() -> None:
    x, weight = torch.zeros(3, 8), torch.randn(20, 8)
    x[1], weight[4] = 1.0, 0.0
    out = product(x, pack_int8(weight), None)
    assert not out[0].any()
    assert not out[:, 4].any()
    assert out[1].any()


def test_some_outputs() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(3, 40), torch.randn(100, 40)
    packed = pack_int8(weight)
    assert torch.equal(product(x, packed.outputs(32, 70), None), product(x, packed, None)[:, 32:70])
    assert product(x, packed.outputs(0, 0), None).shape == (3, 0)
    with pytest.raises(ValueError, match=f"output 33 is not the first of a panel of {PANEL}$"):
        packed.outputs(33, 70)


@pytest.mark.parametrize("num_in", [24, 33])
def test_rows_of_the_weight(num_in: int) -> None:
    torch.manual_seed(0)
    weight, indices = torch.randn(50, num_in), torch.tensor([49, 0, 17, 17])
    torch.testing.assert_close(pack_int8(weight).rows(indices).double(), rounded(weight)[indices])
