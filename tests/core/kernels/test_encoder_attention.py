"""The encoder's attention against PyTorch's in float64."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from transept.core.kernels import encoder_attention, int16_attention
from transept.core.kernels.encoder_attention import FEWEST_TOKENS


def attend(query: Tensor, key: Tensor, value: Tensor, scale: float, kernel: Any = encoder_attention) -> Tensor:
    out = torch.full(query.shape, float("nan"))
    kernel.attend(query, key, value, scale, out)
    return out


def expected(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    q, k, v = (x.double().transpose(0, 1) for x in (query, key, value))
    return F.scaled_dot_product_attention(q, k, v, scale=scale, enable_gqa=True).transpose(0, 1)


@settings(deadline=None, max_examples=40)  # the first example compiles
@given(
    st.integers(FEWEST_TOKENS, 400),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from([5, 16, 32, 40, 48, 64, 80, 128]),
)
def test_it_is_attention(tokens: int, kv_heads: int, shared: int, dim: int) -> None:
    torch.manual_seed(tokens)
    heads = kv_heads * shared
    projected = torch.randn(tokens, heads + 2 * kv_heads, dim)
    query, key, value = projected.split([heads, kv_heads, kv_heads], dim=1)  # with a stride, as from one product
    out = attend(query, key, value, dim**-0.5)
    torch.testing.assert_close(out.double(), expected(query, key, value, dim**-0.5), rtol=1e-5, atol=2e-6)


def test_scores_that_exp_cannot_hold() -> None:
    torch.manual_seed(0)
    query, key, value = 10 * torch.randn(3, 1500, 2, 64)
    out = attend(query, key, value, 1.0)  # scores to some thousands, which float32 holds to 2e-4
    torch.testing.assert_close(out.double(), expected(query, key, value, 1.0), rtol=2e-3, atol=2e-2)


@pytest.mark.parametrize("kernel", [encoder_attention, int16_attention])
def test_a_row_is_the_same_wherever_it_stands(kernel: Any) -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 131, 2, 32)
    turned = attend(query.roll(7, dims=0), key, value, 0.2, kernel).roll(-7, dims=0)
    assert torch.equal(turned, attend(query, key, value, 0.2, kernel))


@pytest.mark.parametrize("kernel", [encoder_attention, int16_attention])
def test_what_is_not_a_number_stays_with_its_query(kernel: Any) -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 100, 2, 32)
    query[70, 1, 3] = float("nan")
    out = attend(query, key, value, 0.2, kernel)
    assert out[70, 1].isnan().all()
    assert out.isnan().sum() == 32


@pytest.mark.parametrize("kernel", [encoder_attention, int16_attention])
def test_a_query_whose_scores_are_all_minus_infinity_sees_nothing(kernel: Any) -> None:
    torch.manual_seed(0)
    query, key, value = torch.rand(3, 300, 2, 32)
    query[70, 1] *= -1e36
    key[:, 1] *= 1e5
    out = attend(query, key, value, 1.0, kernel)
    assert (out[70, 1] == 0).all()
    assert out.isfinite().all()


@pytest.mark.parametrize("kernel", [encoder_attention, int16_attention])
@pytest.mark.parametrize(
    ("keys", "values"), [((99, 2, 16), (100, 2, 16)), ((100, 2, 16), (100, 3, 16)), ((100, 3, 16), (100, 3, 16))]
)
def test_shapes_that_do_not_belong_together_are_refused(
    kernel: Any, keys: tuple[int, ...], values: tuple[int, ...]
) -> None:
    query = torch.zeros(100, 4, 16)
    with pytest.raises(IndexError, match=r"do not belong together: \[100, 4, 16\]"):
        attend(query, torch.zeros(keys), torch.zeros(values), 1.0, kernel)


def test_which_sequences_it_serves() -> None:
    assert encoder_attention.serves(torch.empty(FEWEST_TOKENS, 2, 64))
    assert not encoder_attention.serves(torch.empty(FEWEST_TOKENS - 1, 2, 64))
    assert not encoder_attention.serves(torch.empty(100, 2, 64, dtype=torch.bfloat16))
