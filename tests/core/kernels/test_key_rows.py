"""Scores of keys and sums of values for all heads, for heads of whole vectors and others."""

import numpy as np
import pytest
import torch

from transept.core.kernels.key_rows import MOST_VECTORS, Sizes, add_values, score
from transept.core.kernels.paged_attention import array_of
from transept.core.kernels.tiles import LANES

DIMS = [5, LANES, 4 * LANES, MOST_VECTORS * LANES, (MOST_VECTORS + 1) * LANES]
HEADS = [(1, 1), (6, 1), (6, 3)]  # of queries, that share a key's
DTYPES = [torch.float32, torch.float16]
COUNTS = [1, 2, 7]  # of keys
QUERIES = 3
BEFORE = 3  # numbers that are somebody else's

every_case = pytest.mark.parametrize(
    ("dim", "heads", "shared", "count", "dtype"),
    [(dim, *heads, count, dtype) for dim in DIMS for heads in HEADS for count in COUNTS for dtype in DTYPES],
    ids=str,
)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def scattered(count: int, heads: int, dim: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """So many keys or values anywhere in an array: the array, where each begins, and all, [count, heads, dim]."""
    places = BEFORE + torch.randperm(count) * heads * dim
    array = torch.randn(BEFORE + count * heads * dim).to(dtype)
    return array, places, torch.stack([array[place : place + heads * dim] for place in places]).view(count, heads, dim)


@every_case
def test_scores(dim: int, heads: int, shared: int, count: int, dtype: torch.dtype) -> None:
    keys, places, each = scattered(count, heads // shared, dim, dtype)
    query = torch.randn(BEFORE + QUERIES * heads * dim)
    queries = query[BEFORE:].double().view(QUERIES, heads, dim)
    expected = 0.3 * torch.einsum("qhd,khd->qhk", queries, each.double().repeat_interleave(shared, 1))
    out = torch.full(expected.shape, 9.0)
    sizes = Sizes(QUERIES, heads, shared, dim)
    score(query.numpy(), BEFORE, array_of(keys), places.numpy(), sizes, np.float32(0.3), out.view(-1).numpy())
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)


@every_case
def test_sums_of_values(dim: int, heads: int, shared: int, count: int, dtype: torch.dtype) -> None:
    values, places, each = scattered(count, heads // shared, dim, dtype)
    weights, out = torch.rand(QUERIES, heads, count), torch.randn(QUERIES, heads, dim)
    added = torch.einsum("qhk,khd->qhd", weights.double(), each.double().repeat_interleave(shared, 1))
    expected = out.double() + added
    flat, sizes = out.view(-1), Sizes(QUERIES, heads, shared, dim)
    add_values(weights.view(-1).numpy(), array_of(values), 2, (places - 2).numpy(), sizes, flat.numpy())
    torch.testing.assert_close(out.double(), expected, rtol=1e-6, atol=1e-6)
