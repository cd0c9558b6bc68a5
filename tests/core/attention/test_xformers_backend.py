"""The backend that calls xFormers against a loop in float64, on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise

import pytest
import torch
from paged_steps import (
    BIASES,
    CROSS_STEPS,
    DECODER_STEPS,
    DEVICE,
    HEAD_DIM,
    SCALE,
    Paged,
    Request,
    assert_cross_attention,
    attend_naively,
    make_bias,
    plan,
    run_cross_step,
    run_decoder_step,
)

from transept.core.attention.backends.base import AttentionBackend, AttentionCall
from transept.core.attention.backends.xformers import XformersBackend
from transept.core.attention.metadata import AttentionMetadata, AttentionType

DTYPES = {torch.float16: 5e-3, torch.bfloat16: 4e-2}  # and their tolerances
pytestmark = pytest.mark.gpu


@pytest.fixture
def backend() -> AttentionBackend:
    reasons = XformersBackend.reasons_against(torch.device(DEVICE), torch.float16, HEAD_DIM, 64)
    if reasons:
        pytest.skip("; ".join(reasons))
    return XformersBackend()


@pytest.fixture(autouse=True)
def _on_device() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.device(DEVICE):
        yield


def paged(lengths: list[int], cached: list[int], kv_heads: int, dtype: torch.dtype) -> Paged:
    """With numbers in the slots that nobody wrote: triton_splitk reads them, and gives them no weight."""
    made = Paged.make(lengths, cached, 64, "scattered", kv_heads, dtype)
    made.cache = made.cache.nan_to_num()
    return made


@pytest.mark.parametrize("bias_kind", BIASES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_encoder_tokens_attend_within_their_sequence(
    backend: AttentionBackend, bias_kind: str, dtype: torch.dtype
) -> None:
    lengths = [90, 1, 64, 7]
    bias, dense = make_bias(bias_kind, 2, bidirectional=True, dtype=dtype)
    query, key, value = torch.randn(sum(lengths), 3, 2, HEAD_DIM, dtype=dtype).unbind(1)
    metadata = plan(backend, AttentionMetadata.for_encoder(lengths))
    out = backend.forward(AttentionCall(query, key, value, None, metadata, AttentionType.ENCODER, SCALE, bias))
    for start, end in pairwise([0, *accumulate(lengths)]):
        rows = slice(start, end)
        expected = attend_naively(query[rows], key[rows], value[rows], SCALE, causal=False, bias=dense)
        torch.testing.assert_close(out[rows].double(), expected, rtol=DTYPES[dtype], atol=DTYPES[dtype])


@pytest.mark.parametrize("step", DECODER_STEPS.values(), ids=DECODER_STEPS)
@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (4, 2)])
@pytest.mark.parametrize("bias_kind", BIASES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_decoder_tokens_attend_to_their_past(
    backend: AttentionBackend,
    step: list[tuple[int, int]],
    heads: int,
    kv_heads: int,
    bias_kind: str,
    dtype: torch.dtype,
) -> None:
    lengths = [length for length, _ in step]
    cache = paged(lengths, [length - queries for length, queries in step], kv_heads, dtype)
    bias, dense = make_bias(bias_kind, heads, bidirectional=False, dtype=dtype)
    query = torch.randn(sum(queries for _, queries in step), heads, HEAD_DIM, dtype=dtype)
    out = run_decoder_step(backend, cache, step, query, SCALE, bias)
    start = 0
    for (_, queries), keys, values in zip(step, cache.keys, cache.values, strict=True):
        rows = slice(start, start + queries)
        expected = attend_naively(query[rows], keys, values, SCALE, causal=True, bias=dense)
        torch.testing.assert_close(out[rows].double(), expected, rtol=DTYPES[dtype], atol=DTYPES[dtype])
        start += queries


@pytest.mark.parametrize("step", CROSS_STEPS.values(), ids=CROSS_STEPS)
@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (4, 2)])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_decoder_tokens_attend_to_all_of_their_encoder_tokens(
    backend: AttentionBackend, step: list[Request], heads: int, kv_heads: int, dtype: torch.dtype
) -> None:
    lengths = [request.length for request in step]
    cache = paged(lengths, [0 if request.prefill else request.length for request in step], kv_heads, dtype)
    query = torch.randn(sum(request.queries for request in step), heads, HEAD_DIM, dtype=dtype)
    out = run_cross_step(backend, cache, step, query)
    assert_cross_attention(out, query, cache, step, SCALE, DTYPES[dtype])


def test_a_step_so_large_that_keys_need_no_splitting(backend: AttentionBackend) -> None:
    step = [Request(prefill=False, queries=1, length=130) for _ in range(300)]
    cache = paged([130] * len(step), [130] * len(step), 8, torch.float16)
    query = torch.randn(len(step), 8, HEAD_DIM, dtype=torch.float16)
    assert_cross_attention(
        run_cross_step(backend, cache, step, query), query, cache, step, SCALE, DTYPES[torch.float16]
    )
