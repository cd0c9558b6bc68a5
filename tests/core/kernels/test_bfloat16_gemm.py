"""The product with a weight in bfloat16 against PyTorch's in float64, of the same rounded numbers."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from transept.core.kernels.cpu.gemm.panels import pack_bfloat16, panel_size
from transept.core.kernels.cpu.gemm.product import product


def rounded(numbers: Tensor) -> Tensor:
    return numbers.bfloat16().double()


@given(st.integers(1, 150), st.integers(1, 70), st.integers(1, 200), st.booleans(), st.booleans())
def test_it_is_the_product(num_rows: int, num_in: int, num_out: int, with_bias: bool, half: bool) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(num_rows, num_in), torch.randn(num_out, num_in)
    weight = weight.half() if half else weight
    bias = torch.randn(num_out) if with_bias else None
    expected = rounded(x) @ rounded(weight).T + (0 if bias is None else bias.double())
    torch.testing.assert_close(product(x, pack_bfloat16(weight), bias).double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("num_in", [512, 4096])
def test_long_sums_are_float32(num_in: int) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(30, num_in), torch.randn(64, num_in)
    expected = rounded(x) @ rounded(weight).T
    torch.testing.assert_close(product(x, pack_bfloat16(weight), None).double(), expected, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("num_rows", [2, 5, 7, 64, 97, 300])
def test_a_row_is_the_same_to_the_last_bit_whatever_is_beside_it(num_rows: int) -> None:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(num_rows, 96), pack_bfloat16(torch.randn(150, 96)), torch.randn(150)
    alone = torch.cat([product(row[None], weight, bias) for row in x])
    assert torch.equal(product(x, weight, bias), alone)


def test_numbers_are_rounded_to_the_nearest_even() -> None:
    """To 8 bits, as PyTorch does, on either side; what is no number, or too large, says so."""
    numbers = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -1 - 2**-8, 3e38, 3.4e38, -3.4e38, 0.0])
    ones = torch.ones(1, 1)
    assert torch.equal(product(numbers[:, None], pack_bfloat16(ones), None)[:, 0], numbers.bfloat16().float())
    assert torch.equal(product(ones, pack_bfloat16(numbers[:, None]), None)[0], numbers.bfloat16().float())
    for number in (torch.nan, torch.inf):
        x = torch.tensor([[number, 1.0], [1.0, 1.0]])
        out = product(x, pack_bfloat16(torch.ones(40, 2)), None)
        torch.testing.assert_close(out[0], torch.full((40,), number), equal_nan=True)
        assert torch.equal(out[1], torch.full((40,), 2.0))


def test_some_outputs() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(3, 40), torch.randn(100, 40)
    packed = pack_bfloat16(weight)
    assert torch.equal(
        product(x, packed.outputs(panel_size(), 70), None), product(x, packed, None)[:, panel_size() : 70]
    )
    assert product(x, packed.outputs(0, 0), None).shape == (3, 0)


@pytest.mark.parametrize("num_in", [24, 33])
def test_rows_of_the_weight(num_in: int) -> None:
    torch.manual_seed(0)
    weight, indices = torch.randn(50, num_in), torch.tensor([49, 0, 17, 17])
    assert torch.equal(pack_bfloat16(weight).rows(indices), weight[indices].bfloat16().float())
