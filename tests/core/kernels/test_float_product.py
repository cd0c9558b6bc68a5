"""The product with a packed weight against PyTorch's in float64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from transept.core.kernels.float_product import BLOCK, DEPTH, MOST_AT_ONCE, linear, pack, rows_of
from transept.core.kernels.tiles import COLUMNS

DTYPES = [torch.float32, torch.float16]


@settings(deadline=None)  # the first example compiles
@given(st.integers(0, 3 * BLOCK), st.integers(1, 70), st.integers(1, 200), st.booleans(), st.sampled_from(DTYPES))
def test_it_is_the_product(num_rows: int, num_in: int, num_out: int, with_bias: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(num_rows, num_in), torch.randn(num_out, num_in).to(dtype)
    bias = torch.randn(num_out) if with_bias else None
    expected = x.double() @ weight.double().T + (0 if bias is None else bias.double())
    torch.testing.assert_close(linear(x, pack(weight, dtype), bias).double(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("num_rows", [1, 30, MOST_AT_ONCE + 50])
@pytest.mark.parametrize("num_in", [DEPTH, DEPTH + 1, 2 * DEPTH + 100])
def test_long_rows(num_rows: int, num_in: int) -> None:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(num_rows, num_in), torch.randn(300, num_in), torch.randn(300)
    expected = x.double() @ weight.double().T + bias
    torch.testing.assert_close(linear(x, pack(weight, torch.float32), bias).double(), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("num_rows", [2, 5, 7, 64, MOST_AT_ONCE + 1, 300])
@pytest.mark.parametrize("num_in", [96, DEPTH + 40])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_row_is_the_same_to_the_last_bit_whatever_is_beside_it(
    num_rows: int, num_in: int, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    x, weight, bias = torch.randn(num_rows, num_in), pack(torch.randn(150, num_in), dtype), torch.randn(150)
    alone = torch.cat([linear(row[None], weight, bias) for row in x])
    assert torch.equal(linear(x, weight, bias), alone)


def test_a_float16_weight_gives_what_it_gives_in_float32() -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(70, 40), torch.randn(100, 40).half()
    weight[0] = torch.finfo(torch.float16).smallest_normal / 8  # subnormal
    weight[-1, -1] = torch.finfo(torch.float16).max
    narrow, wide = (linear(x, pack(weight.float(), dtype), None) for dtype in (torch.float16, torch.float32))
    assert torch.equal(narrow, wide)


def test_rows_may_lie_apart() -> None:
    x, weight = torch.randn(5, 3, 48), torch.randn(30, 48)
    out = linear(x[:, 1], pack(weight, torch.float32), None)
    torch.testing.assert_close(out, x[:, 1] @ weight.T, rtol=1e-5, atol=1e-4)


def test_what_is_not_finite_stays_so() -> None:
    x, weight = torch.zeros(8, 16), torch.ones(20, 16)
    x[1, 3], x[2, 3] = float("inf"), float("nan")
    out = linear(x, pack(weight, torch.float32), None)
    assert out[0].tolist() == out[3].tolist() == [0.0] * 20
    assert torch.isposinf(out[1]).all()
    assert torch.isnan(out[2]).all()


def test_some_outputs() -> None:
    torch.manual_seed(0)
    x, packed = torch.randn(3, 40), pack(torch.randn(100, 40), torch.float32)
    assert torch.equal(linear(x, packed.outputs(slice(32, 70)), None), linear(x, packed, None)[:, 32:70])
    assert linear(x, packed.outputs(slice(0)), None).shape == (3, 0)
    with pytest.raises(ValueError, match=f"output 33 is not the first of a panel of {COLUMNS}$"):
        packed.outputs(slice(33, 70))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_of_the_weight(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    weight, indices = torch.randn(50, 33).to(dtype), torch.tensor([49, 0, 17, 17])
    assert torch.equal(rows_of(pack(weight, dtype), indices), weight[indices].float())


@pytest.mark.parametrize("index", [-1, 30, 31])
def test_a_row_that_the_weight_has_not_is_refused(index: int) -> None:
    packed = pack(torch.randn(30, 8), torch.float32)  # the last panel is filled up
    with pytest.raises(IndexError, match=f"rows {min(index, 3)} to {max(index, 3)} are asked for of a weight with 30"):
        rows_of(packed, torch.tensor([index, 3]))
