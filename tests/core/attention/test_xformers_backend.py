"""The backend that calls xFormers against a loop in float64.

On a GPU xFormers' operators run. Elsewhere a stand-in takes their place: it asks the operator whether it would take
what it is given, and computes attention under the mask that xFormers makes of its bias. So biases, paged tables, rows
and shared heads are checked on a CPU, where the package imports without its extension.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import accumulate, pairwise
from typing import Any

import pytest
import torch
from paged_steps import (
    BIASES,
    CROSS_STEPS,
    DECODER_STEPS,
    DEVICE,
    HEAD_DIM,
    LAYOUTS,
    SCALE,
    Paged,
    Request,
    assert_cross_attention,
    attend_naively,
    decoder_metadata,
    make_bias,
    make_tables,
    plan,
    run_cross_step,
    run_decoder_step,
    slots_of,
)
from torch import Tensor

from transept.core.attention.backends.base import AttentionBackend, AttentionCall
from transept.core.attention.backends.xformers import PAGE, XformersBackend
from transept.core.attention.metadata import AttentionMetadata, AttentionType

DTYPES = {torch.float16: 5e-3, torch.bfloat16: 4e-2}  # and their tolerances
HERE = ("device=cpu", "wasn't built", "triton is not available", "only supported on A100+")  # a CPU is none of these
pytestmark = [
    pytest.mark.skipif(find_spec("xformers") is None, reason="xFormers is not installed"),
    pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed"),
    pytest.mark.usefixtures("triton_checks_no_overflow"),
]


def attend_under_its_mask(operator: Any, inputs: Any, needs_gradient: bool) -> tuple[Tensor, None]:
    """Stand in for an operator's `apply` on a CPU."""
    inputs.validate_inputs()
    assert not [reason for reason in operator.not_supported_reasons(inputs) if not any(each in reason for each in HERE)]
    bias, keys, values = inputs.attn_bias, inputs.key[0], inputs.value[0]
    if hasattr(bias, "block_tables"):
        pages = bias.block_tables.long()  # [sequences, most pages]
        keys, values = (each.unflatten(0, (-1, bias.page_size))[pages].flatten(0, 2) for each in (keys, values))
        bias = bias._UNPAGED_TYPE(bias.q_seqinfo, bias.k_seqinfo)
    # [tokens, heads, dim], of heads that share keys one after the other
    query, keys, values = (each.flatten(1, -2).double() for each in (inputs.query[0], keys, values))
    scores = torch.einsum("qhd,khd->hqk", query, keys) * inputs.scale
    scores += bias.materialize((len(query), len(keys)), torch.float64)
    out = torch.einsum("hqk,khd->qhd", scores.softmax(dim=-1), values)
    return out.to(inputs.query.dtype).reshape(inputs.query.shape), None


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> AttentionBackend:
    if DEVICE == "cuda":
        reasons = XformersBackend.reasons_against(torch.device(DEVICE), torch.float16, HEAD_DIM, 64)
        if reasons:
            pytest.skip("; ".join(reasons))
        return XformersBackend()
    for name in ("flash", "triton_splitk"):
        operator = importlib.import_module(f"xformers.ops.fmha.{name}").FwOp
        monkeypatch.setattr(operator, "apply", classmethod(attend_under_its_mask))
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


@pytest.mark.parametrize("bias_kind", BIASES if DEVICE == "cuda" else ["no bias"])  # others are triton's
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
@pytest.mark.parametrize("bias_kind", BIASES if DEVICE == "cuda" else ["no bias"])  # others are triton's
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


@pytest.mark.slow
def test_a_step_so_large_that_keys_need_no_splitting(backend: AttentionBackend) -> None:
    step = [Request(prefill=False, queries=1, length=130) for _ in range(300)]
    cache = paged([130] * len(step), [130] * len(step), 8, torch.float16)
    query = torch.randn(len(step), 8, HEAD_DIM, dtype=torch.float16)
    assert_cross_attention(
        run_cross_step(backend, cache, step, query), query, cache, step, SCALE, DTYPES[torch.float16]
    )


def tables_of(lengths: list[int], layout: str) -> list[list[int]]:
    """Block tables without block 0, with which shorter ones are filled up: xFormers materialises these, too."""
    tables, _ = make_tables(lengths, PAGE, layout)
    return [[block + 1 for block in table] for table in tables]


def assert_shows(bias: Any, shape: tuple[int, int], expected: Tensor) -> None:
    """xFormers makes a mask of a bias that shows these keys to each query. expected: bool [queries, keys]."""
    mask = bias.materialize(shape, device=DEVICE)
    assert set(mask.unique().tolist()) <= {0.0, float("-inf")}
    seen = torch.zeros(shape[0], max(mask.shape[1], expected.shape[1]), dtype=torch.bool)
    seen[:, : mask.shape[1]] = mask == 0
    assert torch.equal(seen[:, : expected.shape[1]], expected)
    assert not seen[:, expected.shape[1] :].any()


def slots_seen(counts: list[int], lengths: list[int], tables: list[list[int]]) -> Tensor:
    """What each of a sequence's queries sees of the cache: the slots of all of its keys."""
    seen = torch.zeros(sum(counts), PAGE * (1 + max(map(max, tables))), dtype=torch.bool)
    for row, which in enumerate(i for i, count in enumerate(counts) for _ in range(count)):
        seen[row, slots_of(tables[which], lengths[which], PAGE)] = True
    return seen


def width_of(bias: Any) -> int:
    """Keys of all sequences, each filled up to as many pages."""
    return bias.block_tables.numel() * bias.page_size


def test_the_mask_of_encoders_shows_each_sequence_itself() -> None:
    lengths = [90, 1, 64, 7]
    metadata = plan(XformersBackend(), AttentionMetadata.for_encoder(lengths))
    metadata.plan.device = torch.device(DEVICE)
    expected = torch.block_diag(*(torch.ones(length, length) for length in lengths)).bool()
    assert_shows(metadata.plan.encoder_mask, expected.shape, expected)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("step", DECODER_STEPS.values(), ids=DECODER_STEPS)
def test_masks_of_decoders_show_what_came_before(step: list[tuple[int, int]], layout: str) -> None:
    lengths, counts = ([*each] for each in zip(*step, strict=True))
    tables = tables_of(lengths, layout)
    cache = Paged([], [], [slots_of(*each, PAGE) for each in zip(tables, lengths, strict=True)], tables, None, PAGE)
    metadata = decoder_metadata(XformersBackend(), cache, step)
    metadata.plan.device = torch.device(DEVICE)
    calls = metadata.plan.self_calls
    single = [i for i, count in enumerate(counts) if count == 1]
    whole = [i for i, count in enumerate(counts) if count == lengths[i] > 1]
    assert calls.continues == (len(single) + len(whole) < len(step))
    rows = torch.arange(sum(counts)).split(counts)
    for which, chosen in ((single, calls.decode_rows), (whole, calls.prefill_rows)):
        picked = torch.arange(sum(counts))[chosen]
        assert picked.tolist() == (torch.cat([rows[i] for i in which]).tolist() if which else [])
    if single:
        expected = slots_seen([1] * len(single), [lengths[i] for i in single], [tables[i] for i in single])
        assert_shows(calls.decode, (len(single), width_of(calls.decode)), expected)
    if whole:
        causal = torch.block_diag(*(torch.ones(counts[i], counts[i]).tril() for i in whole)).bool()
        assert_shows(calls.prefill, causal.shape, causal)
    assert (calls.decode is None, calls.prefill is None) == (not single, not whole)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("step", CROSS_STEPS.values(), ids=CROSS_STEPS)
def test_the_mask_of_cross_attention_shows_all_of_an_input(step: list[Request], layout: str) -> None:
    counts, lengths = [request.queries for request in step], [request.length for request in step]
    tables = tables_of(lengths, layout)
    metadata = AttentionMetadata(
        PAGE, cross_query_start_loc=[0, *accumulate(counts)], cross_seq_lens=lengths, cross_block_tables=tables
    )
    plan(XformersBackend(), metadata).plan.device = torch.device(DEVICE)
    bias = metadata.plan.cross_mask
    assert_shows(bias, (sum(counts), width_of(bias)), slots_seen(counts, lengths, tables))
