"""Writing rows of keys and values to a cache, against PyTorch's conversion."""

import pytest
import torch

from transept.core.kernels.cpu.attention.kv_cache import copy_rows


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize(("tokens", "heads", "dim"), [(1, 1, 5), (100, 3, 24), (33, 2, 64)])
def test_rows_are_written(dtype: torch.dtype, tokens: int, heads: int, dim: int) -> None:
    torch.manual_seed(0)
    projected = torch.randn(tokens, 2 * heads, dim)
    cache = torch.full((2, tokens + 7, heads, dim), 3.0, dtype=dtype)
    for part, x in enumerate(projected.chunk(2, dim=1)):
        copy_rows(x, cache[part, 4 : 4 + tokens])
        assert torch.equal(cache[part, 4 : 4 + tokens], x.to(dtype))
    assert (cache[:, :4] == 3).all()
    assert (cache[:, 4 + tokens :] == 3).all()


def test_numbers_beyond_float16_are_its_largest() -> None:
    x = torch.tensor([1e6, -1e6, float("inf"), float("nan"), 65504.0]).repeat(8).view(1, 1, 40)
    slots = torch.empty(1, 1, 40, dtype=torch.float16)
    copy_rows(x, slots)
    right = x.clamp(-65504, 65504).half()
    torch.testing.assert_close(slots, right, rtol=0, atol=0, equal_nan=True)


def test_heads_apart_are_written() -> None:
    x = torch.randn(6, 4, 16)[:, ::2]
    slots = torch.empty(6, 2, 16)
    copy_rows(x, slots)
    assert torch.equal(slots, x)


def test_other_slots_are_refused() -> None:
    x = torch.zeros(4, 2, 8)
    for slots in (
        torch.empty(5, 2, 8),
        torch.empty(4, 2, 8, dtype=torch.bfloat16),
        torch.empty(4, 8, 2).transpose(1, 2),
    ):
        with pytest.raises(IndexError, match="cannot be written to"):
            copy_rows(x, slots)
