"""The product with few rows against PyTorch's in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transept.core.kernels.few_rows import CHUNK, MOST_ROWS, linear
from transept.core.layers.linear import matmul


@settings(deadline=None)  # the first example compiles
@given(st.integers(1, MOST_ROWS), st.integers(1, 70), st.integers(1, 3 * CHUNK), st.booleans())
def test_it_is_the_product(rows: int, num_in: int, num_out: int, with_bias: bool) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(rows, num_in), torch.randn(num_out, num_in)
    bias = torch.randn(num_out) if with_bias else None
    expected = x.double() @ weight.double().T + (0 if bias is None else bias.double())
    torch.testing.assert_close(linear(x, weight, bias).double(), expected, rtol=1e-5, atol=1e-4)


@settings(deadline=None)
@given(st.integers(1, MOST_ROWS), st.integers(1, 70), st.integers(1, 100))
def test_a_float16_weight_gives_what_it_gives_in_float32(rows: int, num_in: int, num_out: int) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(rows, num_in), torch.randn(num_out, num_in).half()
    weight[0] = torch.finfo(torch.float16).smallest_normal / 8  # subnormal
    weight[-1, -1] = torch.finfo(torch.float16).max
    assert torch.equal(linear(x, weight, None), linear(x, weight.float(), None))


def test_rows_may_lie_apart() -> None:
    x, weight = torch.randn(5, 3, 48), torch.randn(30, 48)
    torch.testing.assert_close(linear(x[:, 1], weight, None), x[:, 1] @ weight.T, rtol=1e-5, atol=1e-4)


def test_what_is_not_finite_stays_so() -> None:
    x, weight = torch.zeros(4, 16), torch.ones(6, 16)
    x[1, 3], x[2, 3] = float("inf"), float("nan")
    out = linear(x, weight, None)
    assert out[0].tolist() == out[3].tolist() == [0.0] * 6
    assert torch.isposinf(out[1]).all()
    assert torch.isnan(out[2]).all()


@pytest.mark.parametrize("rows", [0, 1, MOST_ROWS, MOST_ROWS + 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_every_number_of_rows_and_dtype_is_served(rows: int, dtype: torch.dtype) -> None:
    x, weight, bias = torch.randn(rows, 8).to(dtype), torch.randn(5, 8).to(dtype), torch.randn(5).to(dtype)
    out = matmul(x, weight, bias)
    assert out.dtype is dtype
    assert out.is_contiguous()
    torch.testing.assert_close(out, torch.nn.functional.linear(x, weight, bias))


@pytest.mark.parametrize("rows", [1, MOST_ROWS + 1])
def test_a_weight_is_widened_to_its_input(rows: int) -> None:
    x, weight = torch.randn(rows, 8), torch.randn(5, 8).half()
    torch.testing.assert_close(matmul(x, weight, None, slice(1, 4)), x @ weight[1:4].float().T)
