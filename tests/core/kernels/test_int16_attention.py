"""The encoder's attention in 16 bits against PyTorch's in float64."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from transept.core.kernels import int16_attention
from transept.core.kernels.int16_attention import FEWEST_TOKENS, MOST_TOKENS


def attend(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    out = torch.full(query.shape, float("nan"))
    int16_attention.attend(query, key, value, scale, out)
    return out


def expected(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    q, k, v = (x.double().transpose(0, 1) for x in (query, key, value))
    return F.scaled_dot_product_attention(q, k, v, scale=scale, enable_gqa=True).transpose(0, 1)


def error(out: Tensor, right: Tensor) -> float:
    return float((out - right).norm() / right.norm())


@settings(deadline=None, max_examples=40)  # the first example compiles
@given(
    st.integers(1, 400),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from([5, 16, 33, 40, 64, 80, 128]),
    st.sampled_from([0.0, 0.1, 1.0]),
)
def test_it_is_attention(tokens: int, kv_heads: int, shared: int, dim: int, sharpness: float) -> None:
    torch.manual_seed(tokens)
    heads = kv_heads * shared
    projected = torch.randn(tokens, heads + 2 * kv_heads, dim)
    query, key, value = projected.split([heads, kv_heads, kv_heads], dim=1)  # with a stride, as from one product
    out = attend(query, key, value, sharpness)
    # A step of a number of some 3 is 3 / 4096 where a head has 128: a score in which that many are summed is rounded by
    # some 0.003 times its scale, and so is its weight.
    assert error(out, expected(query, key, value, sharpness)) < 4e-3 * max(sharpness, 0.25)


def test_sums_of_numbers_as_large_as_they_get_have_room() -> None:
    """All queries, keys and values at their largest, and all tokens alike: no sum of integers overflows."""
    for tokens, dim in ((1, 64), (1500, 64), (1500, 5), (4000, 256)):
        ones = torch.ones(tokens, 1, dim)
        torch.testing.assert_close(attend(ones, ones, -ones, 1.0), -ones, rtol=1e-3, atol=0)


def test_one_token_among_many_that_weigh_little() -> None:
    """A softmax with one high score and a long tail, of which each weight is small and the sum is not."""
    query, key, value = torch.zeros(3, 1500, 1, 64)
    query[:, 0, 0], key[0, 0, 0] = 1, 7.3  # e^7.3 is 1480: half of the weight is the tail's
    value[0] = 1
    right = expected(query, key, value, 1.0)
    assert 0.45 < right[0, 0, 0] < 0.55
    # 32,767 steps for the highest weight are 22 for each of the others, which are rounded by half a step at most.
    torch.testing.assert_close(attend(query, key, value, 1.0).double(), right, rtol=0.5 / 22, atol=0)


def test_large_and_small_numbers() -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 300, 2, 64)
    for factor in (1e-30, 1e30):
        out = attend(query / factor, key * factor, value * factor, 0.125)
        assert error(out / factor, expected(query, key, value, 0.125)) < 1e-3
    assert torch.equal(attend(query, key, torch.zeros_like(value), 0.125), torch.zeros_like(value))
    torch.testing.assert_close(attend(0 * query, key, value, 0.125), value.mean(0).expand_as(value), rtol=0, atol=1e-4)


def test_a_value_that_is_not_a_number_is_seen() -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 100, 2, 32)
    value[50, 0, 3] = float("nan")
    out = attend(query, key, value, 0.2)
    assert out[:, 0, 3].isnan().all()
    assert not out[:, 1].isnan().any()


def test_which_sequences_it_serves() -> None:
    assert int16_attention.serves(torch.empty(FEWEST_TOKENS, 2, 64))
    assert not int16_attention.serves(torch.empty(FEWEST_TOKENS - 1, 2, 64))
    assert not int16_attention.serves(torch.empty(1, 2, 64).expand(MOST_TOKENS + 1, 2, 64))
    assert not int16_attention.serves(torch.empty(300, 2, 64, dtype=torch.bfloat16))
