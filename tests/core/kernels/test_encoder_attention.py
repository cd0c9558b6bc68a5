"""The encoder's attention, in float32, int16, int8 and bfloat16, against PyTorch's in float64."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from transept.core.kernels.cpu.attention.encoder_attention import (
    MOST_TOKENS_ROUNDED,
    attend_in_bfloat16,
    attend_in_int8,
    attend_in_int16,
    attend_sequence,
)
from transept.core.kernels.cpu.isas import DOT_INT8
from transept.core.kernels.cpu.library import capabilities, level
from transept.core.kernels.dispatch import ENCODER_ATTENTION

Kernel = Callable[[Tensor, Tensor, Tensor, float, Tensor, Tensor | None], None]
each_kernel = pytest.mark.parametrize("kernel", [attend_sequence, attend_in_int16, attend_in_bfloat16, attend_in_int8])
of_integers = pytest.mark.parametrize("kernel", [attend_in_int16, attend_in_int8])


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    kernel: Kernel = attend_sequence,
    bias: Tensor | None = None,
    window: tuple[int, int] | None = None,
) -> Tensor:
    out = torch.full(query.shape, float("nan"))
    kernel(query, key, value, scale, out, bias, window=window)
    return out


def expected(query: Tensor, key: Tensor, value: Tensor, scale: float, bias: Tensor | None = None) -> Tensor:
    q, k, v = (x.double().transpose(0, 1) for x in (query, key, value))
    mask = None
    if bias is not None:
        places = torch.arange(len(query))
        mask = bias.double()[:, places[:, None] - places + len(query) - 1]  # [heads or 1, queries, keys]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=True).transpose(0, 1)


@settings(max_examples=40)
@given(
    st.integers(1, 400),
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


@each_kernel
@settings(max_examples=20)
@given(
    st.integers(1, 400),
    st.integers(1, 3),
    st.sampled_from([5, 32, 64, 80]),
    st.booleans(),
    st.one_of(st.none(), st.tuples(st.integers(0, 300), st.integers(0, 300))),
)
def test_a_bias_is_added_by_distance(
    kernel: Kernel, tokens: int, heads: int, dim: int, shared: bool, window: tuple[int, int] | None
) -> None:
    torch.manual_seed(tokens)
    query, key, value = torch.randn(3, tokens, heads, dim)
    longer = 3 * torch.randn(1 if shared else heads, 2 * tokens + 9)
    bias = longer[:, 5 : 2 * tokens + 4]  # with a stride, as of the longest sequence of a step
    if window is not None:
        distances = torch.arange(1 - tokens, tokens)  # from a key to the query
        bias[:, (distances > window[0]) | (distances < -window[1])] = float("-inf")
    out = attend(query, key, value, dim**-0.5, kernel, bias, window)
    right = expected(query, key, value, dim**-0.5, bias)
    assert error(out, right) < {attend_sequence: 1e-5, attend_in_int8: 0.03}.get(kernel, 0.01)


@each_kernel
@pytest.mark.parametrize("size", [(3, 199), (4, 200), (0, 199), (4 * 199,)])
def test_a_bias_of_another_shape_is_refused(kernel: Kernel, size: tuple[int, ...]) -> None:
    query, key, value = torch.zeros(3, 100, 4, 16)
    with pytest.raises(IndexError, match=r"does not belong to 100 tokens and 4 heads"):
        attend(query, key, value, 1.0, kernel, torch.zeros(size))


def test_scores_that_exp_cannot_hold() -> None:
    torch.manual_seed(0)
    query, key, value = 10 * torch.randn(3, 1500, 2, 64)
    out = attend(query, key, value, 1.0)  # scores to some thousands, which float32 holds to 2e-4
    torch.testing.assert_close(out.double(), expected(query, key, value, 1.0), rtol=2e-3, atol=2e-2)


@each_kernel
def test_a_row_is_the_same_wherever_it_stands(kernel: Kernel) -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 131, 2, 32)
    turned = attend(query.roll(7, dims=0), key, value, 0.2, kernel).roll(-7, dims=0)
    assert torch.equal(turned, attend(query, key, value, 0.2, kernel))


@each_kernel
def test_what_is_not_a_number_stays_with_its_query(kernel: Kernel) -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 100, 2, 32)
    query[70, 1, 3] = float("nan")
    out = attend(query, key, value, 0.2, kernel)
    assert out[70, 1].isnan().all()
    assert out.isnan().sum() == 32


@each_kernel
def test_a_query_whose_scores_are_all_minus_infinity_sees_nothing(kernel: Kernel) -> None:
    torch.manual_seed(0)
    query, key, value = torch.rand(3, 300, 2, 32)
    query[70, 1] *= -1e36
    key[:, 1] *= 1e5
    out = attend(query, key, value, 1.0, kernel)
    assert (out[70, 1] == 0).all()
    assert out.isfinite().all()


@each_kernel
def test_scores_that_rise_with_every_key(kernel: Kernel) -> None:
    """What was summed up before a higher score counts less then."""
    torch.manual_seed(0)
    query, value = torch.rand(1500, 2, 32), torch.randn(1500, 2, 32)
    key = torch.linspace(-2, 2, 1500)[:, None, None].expand(-1, 2, 32) + 0.1 * torch.randn(1500, 2, 32)
    out = attend(query, key, value, 1.0, kernel)  # scores from -32 to 32
    assert error(out, expected(query, key, value, 1.0)) < (1e-5 if kernel is attend_sequence else 0.05)


@each_kernel
def test_keys_that_weigh_nothing_before_others(kernel: Kernel) -> None:
    torch.manual_seed(0)
    query, key, value = torch.rand(3, 500, 2, 32)
    key[:300] = -1e38
    out = attend(10 * query, key, value, 1.0, kernel)  # scores of minus infinity
    right = expected(10 * query, key[300:], value[300:], 1.0)
    assert error(out, right) < (1e-5 if kernel is attend_sequence else 0.05)


@each_kernel
def test_heads_may_have_more_numbers_than_there_are_tokens(kernel: Kernel) -> None:
    """In a new thread, whose buffers are as large as this call asks for: writing beyond one breaks the heap."""
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 3, 2, 512)
    with ThreadPoolExecutor(1) as pool:
        out = pool.submit(attend, query, key, value, 0.05, kernel).result()
    assert error(out, expected(query, key, value, 0.05)) < (1e-5 if kernel is attend_sequence else 0.01)


@each_kernel
@pytest.mark.parametrize(
    ("keys", "values"), [((99, 2, 16), (100, 2, 16)), ((100, 2, 16), (100, 3, 16)), ((100, 3, 16), (100, 3, 16))]
)
def test_shapes_that_do_not_belong_together_are_refused(
    kernel: Kernel, keys: tuple[int, ...], values: tuple[int, ...]
) -> None:
    query = torch.zeros(100, 4, 16)
    with pytest.raises(IndexError, match=r"do not belong together: \[100, 4, 16\]"):
        attend(query, torch.zeros(keys), torch.zeros(values), 1.0, kernel)


def error(out: Tensor, right: Tensor) -> float:
    return float((out - right).norm() / right.norm())


@settings(max_examples=40)
@given(
    st.integers(1, 400),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from([5, 16, 33, 40, 64, 80, 128]),
    st.sampled_from([0.0, 0.1, 1.0]),
)
def test_it_is_attention_in_16_bits(tokens: int, kv_heads: int, shared: int, dim: int, sharpness: float) -> None:
    torch.manual_seed(tokens)
    heads = kv_heads * shared
    projected = torch.randn(tokens, heads + 2 * kv_heads, dim)
    query, key, value = projected.split([heads, kv_heads, kv_heads], dim=1)  # with a stride, as from one product
    out = attend(query, key, value, sharpness, attend_in_int16)
    # A step of a number of some 3 is 3 / 4096 where a head has 128: a score in which that many are summed is rounded by
    # some 0.003 times its scale, and so is its weight.
    right = expected(query, key, value, sharpness)
    assert error(out, right) < 4e-3 * max(sharpness, 0.25)
    # In bfloat16 a number is off by a 512th at most, a score by some 0.02 times its scale.
    out = attend(query, key, value, sharpness, attend_in_bfloat16)
    assert error(out, right) < 0.04 * max(sharpness, 0.25)


def test_sums_of_numbers_as_large_as_they_get_have_room() -> None:
    """All queries, keys and values at their largest, and all tokens alike: no sum of integers overflows."""
    for tokens, dim in ((1, 64), (1500, 64), (1500, 5), (4000, 256)):
        ones = torch.ones(tokens, 1, dim)
        torch.testing.assert_close(attend(ones, ones, -ones, 1.0, attend_in_int16), -ones, rtol=1e-3, atol=0)


def test_one_token_among_many_that_weigh_little() -> None:
    """A softmax with one high score and a long tail, of which each weight is small and the sum is not."""
    query, key, value = torch.zeros(3, 1500, 1, 64)
    query[:, 0, 0], key[0, 0, 0] = 1, 7.3  # e^7.3 is 1480: half of the weight is the tail's
    value[0] = 1
    right = expected(query, key, value, 1.0)
    assert 0.45 < right[0, 0, 0] < 0.55
    # 32,767 steps for the highest weight are 22 for each of the others, which are rounded by half a step at most.
    torch.testing.assert_close(attend(query, key, value, 1.0, attend_in_int16).double(), right, rtol=0.5 / 22, atol=0)


def test_a_tail_beside_one_token_is_lost_where_it_shares_its_steps() -> None:
    """In 8 bits a weight is rounded to 255 steps of the largest among 120 keys: of the tail 119 in 1,499 go."""
    query, key, value = torch.zeros(3, 1500, 1, 64)
    query[:, 0, 0], key[0, 0, 0] = 1, 7.3
    value[0] = 1
    right = expected(query, key, value, 1.0)
    out = attend(query, key, value, 1.0, attend_in_int8).double()
    assert 0 < out[0, 0, 0] - right[0, 0, 0] < 0.03
    value[0], value[200:] = 0, 1  # without it, the tail is whole
    right = expected(query, 0 * key, value, 1.0)
    torch.testing.assert_close(attend(query, 0 * key, value, 1.0, attend_in_int8).double(), right, rtol=1e-3, atol=0)


@of_integers
def test_large_and_small_numbers(kernel: Kernel) -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 300, 2, 64)
    for factor in (1e-30, 1e30):
        out = attend(query / factor, key * factor, value * factor, 0.125, kernel)
        assert error(out / factor, expected(query, key, value, 0.125)) < (1e-3 if kernel is attend_in_int16 else 0.02)
    assert torch.equal(attend(query, key, torch.zeros_like(value), 0.125, kernel), torch.zeros_like(value))
    torch.testing.assert_close(
        attend(0 * query, key, value, 0.125, kernel),
        value.mean(0).expand_as(value),
        rtol=0,
        atol=1e-4 if kernel is attend_in_int16 else 2e-3,
    )


@of_integers
def test_a_value_that_is_not_a_number_is_seen(kernel: Kernel) -> None:
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 100, 2, 32)
    value[50, 0, 3] = float("nan")
    out = attend(query, key, value, 0.2, kernel)
    assert out[:, 0, 3].isnan().all()
    assert not out[:, 1].isnan().any()


def test_which_sequences_it_serves() -> None:
    def serving(
        tokens: int, quantization: str | None = None, dtype: torch.dtype = torch.float32, *, long_inputs: bool = False
    ) -> object:
        return ENCODER_ATTENTION.serving(
            torch.empty(1, 2, 64, dtype=dtype), rows=tokens, quantization=quantization, long_inputs=long_inputs
        )

    assert serving(1) is serving(MOST_TOKENS_ROUNDED + 1) is attend_sequence
    assert serving(100, dtype=torch.bfloat16) is None
    assert serving(1, "bfloat16") is serving(1, "bfloat16", long_inputs=True) is attend_in_bfloat16
    assert serving(1, "int8") is serving(MOST_TOKENS_ROUNDED, "int8") is attend_in_int16
    assert serving(MOST_TOKENS_ROUNDED + 1, "int8") is attend_sequence
    of_sound = (
        attend_in_bfloat16 if level() == "amx" else attend_in_int8 if DOT_INT8 in capabilities() else attend_in_int16
    )
    assert serving(1, "int8", long_inputs=True) is of_sound


def test_an_output_with_gaps_is_refused_and_no_tokens_are_none() -> None:
    query, key, value = torch.randn(3, 100, 2, 16)
    with pytest.raises(IndexError, match="do not belong together"):
        attend_sequence(query, key, value, 1.0, torch.empty(100, 2, 32)[..., ::2])
    empty = torch.empty(0, 2, 16)
    attend_sequence(empty, empty, empty, 1.0, empty)
