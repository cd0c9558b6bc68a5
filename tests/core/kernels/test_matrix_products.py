"""Products by AMX, on processors that have it: as near as float32's own, and in int8 the same integers."""

import pytest
import torch
from torch.nn import functional as F

from transept.core.kernels import float_product, int8_product, matrix_product
from transept.core.kernels.float_product import MOST_AT_ONCE
from transept.core.kernels.matrix_product import CHUNK, ROWS
from transept.core.kernels.matrix_tiles import BLOCK, BYTES_DEEP, DEPTH, available

pytestmark = pytest.mark.skipif(not available(), reason="this processor has no AMX")

DEPTHS = [DEPTH, 3 * DEPTH, CHUNK * DEPTH, 2 * CHUNK * DEPTH + DEPTH]


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def root_mean_square(x: torch.Tensor) -> float:
    return x.double().square().mean().sqrt().item()


@pytest.mark.parametrize("num_rows", [1, BLOCK, BLOCK + 1, ROWS, 2 * ROWS + 50])
@pytest.mark.parametrize("num_in", DEPTHS)
@pytest.mark.parametrize("num_out", [5, BLOCK, 100, 800])
def test_float32_is_no_less_exact_than_pytorch(num_rows: int, num_in: int, num_out: int) -> None:
    x = torch.randn(num_rows, num_in) * torch.logspace(-3, 3, num_rows)[:, None]
    weight, bias = torch.randn(num_out, num_in).half().float(), torch.randn(num_out)
    packed = float_product.pack(weight, torch.float16)
    expected = x.double() @ weight.double().T
    for added in (None, bias):
        exact = expected if added is None else expected + added.double()
        error = matrix_product.linear(x, packed, added).double() - exact
        assert root_mean_square(error / exact.norm(dim=1, keepdim=True)) < 1e-6
        if num_rows * num_out > 1000:  # enough for a mean
            theirs = F.linear(x, weight, added).double() - exact
            assert root_mean_square(error) <= 1.2 * root_mean_square(theirs)


@pytest.mark.parametrize("num_in", DEPTHS)
def test_a_row_is_the_same_to_the_last_bit_whatever_is_beside_it(num_in: int) -> None:
    x, bias = torch.randn(ROWS + 70, num_in), torch.randn(150)
    packed = float_product.pack(torch.randn(150, num_in), torch.float16)
    together = matrix_product.linear(x, packed, bias)
    for rows in (slice(0, 1), slice(3, 40), slice(ROWS - 1, ROWS + 1), slice(ROWS + 69, None)):
        assert torch.equal(matrix_product.linear(x[rows], packed, bias), together[rows])


def test_numbers_of_all_sizes() -> None:
    weight = torch.tensor([[1.0], [-65504.0], [6e-8], [0.0]]).half().float().repeat(1, DEPTH)
    x = torch.tensor([[0.0], [1e30], [-3.0], [1e-20]]).repeat(1, DEPTH)
    out = matrix_product.linear(x, float_product.pack(weight, torch.float16), None)
    torch.testing.assert_close(out.double(), x.double() @ weight.double().T, rtol=1e-6, atol=0)
    x[1, 3], x[2, 5] = float("inf"), float("nan")
    out = matrix_product.linear(x, float_product.pack(weight, torch.float16), None)
    assert out.isfinite().all(1).tolist() == [True, False, False, True]


@pytest.mark.parametrize("num_rows", [MOST_AT_ONCE + 1, MOST_AT_ONCE + BLOCK, 600])
@pytest.mark.parametrize("num_in", [BYTES_DEEP, 5 * BYTES_DEEP, 2048])
@pytest.mark.parametrize("num_out", [5, BLOCK, 333])
def test_int8_gives_the_same_bits_as_the_tiles_for_few_rows(num_rows: int, num_in: int, num_out: int) -> None:
    x, bias = torch.randn(num_rows, num_in) * torch.logspace(-3, 3, num_rows)[:, None], torch.randn(num_out)
    x[5] = 0
    packed = int8_product.pack(torch.randn(num_out, num_in))
    for added in (None, bias):
        few = torch.cat([int8_product.linear(part, packed, added) for part in x.split(50)])
        assert torch.equal(int8_product.linear(x, packed, added), few)


def test_int8_of_the_largest_numbers() -> None:
    x = torch.cat([torch.ones(60, 4096), -torch.ones(60, 4096)])
    packed = int8_product.pack(torch.cat([torch.ones(40, 4096), -torch.ones(40, 4096)]))
    few = torch.cat([int8_product.linear(part, packed, None) for part in x.split(50)])
    assert torch.equal(int8_product.linear(x, packed, None), few)
    torch.testing.assert_close(few.abs(), torch.full((120, 80), 4096.0), rtol=1e-3, atol=0)
