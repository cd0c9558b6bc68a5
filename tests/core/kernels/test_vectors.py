"""The loops over stored numbers beside PyTorch's, for sizes that are no whole vectors, too."""

import numpy as np
import pytest
import torch

from transept.core.kernels.paged_attention import array_of
from transept.core.kernels.vectors import add_times, dot, highest, keep

SIZES = [1, 7, 8, 15, 16, 17, 20, 64, 75]
DTYPES = [torch.float32, torch.float16]


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sums_and_products_widen_what_is_stored(size: int, dtype: torch.dtype) -> None:
    numbers, stored = torch.randn(size + 5), torch.randn(size + 9).to(dtype)
    expected = torch.dot(numbers[2 : size + 2].double(), stored[3 : size + 3].double())
    assert dot(numbers.numpy(), 2, array_of(stored), 3, size) == pytest.approx(expected.item(), rel=1e-5, abs=1e-5)

    out = torch.randn(size + 4)
    added = out.double()
    added[1 : size + 1] += 0.7 * stored[3 : size + 3].double()
    add_times(np.float32(0.7), array_of(stored), 3, out.numpy(), 1, size)
    torch.testing.assert_close(out.double(), added, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_is_kept_is_rounded_as_pytorch_rounds(size: int, dtype: torch.dtype) -> None:
    numbers = torch.randn(size + 5) * torch.logspace(-9, 7, size + 5)  # from subnormal ones to those beyond float16
    numbers[-4] = float("nan")
    out = torch.full((size + 9,), 7.0, dtype=dtype)
    expected = out.clone()
    limit = torch.finfo(dtype).max
    expected[4 : size + 4] = numbers[2 : size + 2].clamp(-limit, limit).to(dtype)
    keep(numbers.numpy(), 2, array_of(out), 4, size)
    torch.testing.assert_close(out, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("size", SIZES)
def test_the_highest_number(size: int) -> None:
    for place in {0, size // 2, size - 1}:
        numbers = torch.randn(size + 5).numpy()
        numbers[:2], numbers[size + 2 :] = 100, 100  # somebody else's
        numbers[2 + place] = 50
        assert highest(numbers, 2, size) == 50
        numbers[2 + place] = np.nan
        assert highest(numbers, 2, size) == np.nanmax(numbers[2 : size + 2], initial=-np.inf)
