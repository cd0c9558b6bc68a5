"""The torch backend against a loop in float64 over sequences and queries."""

from __future__ import annotations

import copy
from itertools import accumulate, pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from paged_steps import (
    BIASES,
    BLOCK_SIZES,
    CROSS_STEPS,
    DECODER_STEPS,
    HEAD_DIM,
    HEADS,
    LAYOUTS,
    LIMITS,
    SCALE,
    Paged,
    Request,
    assert_cross_attention,
    assert_same,
    attend_naively,
    cross_metadata,
    decoder_metadata,
    hiding_bias,
    make_bias,
    plan,
    run_cross_step,
    run_decoder_step,
    slots_of,
)

from transept.core.attention.backends.base import AttentionCall
from transept.core.attention.backends.torch import CAPPED_QUERIES, TorchBackend
from transept.core.attention.backends.torch_plan import slot_runs
from transept.core.attention.biases import RelativePositionBias
from transept.core.attention.metadata import AttentionMetadata, AttentionType
from transept.core.kernels.dispatch import ENCODER_ATTENTION, PagedWork

BACKEND = TorchBackend()
# Of what is computed and of the cache. In float32 sequences with few queries go to a kernel of ours.
DTYPES = [(torch.float32, torch.float32), (torch.float64, torch.float64), (torch.float32, torch.float16)]


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


# --- encoder self-attention ---


@pytest.mark.parametrize("lengths", [[1], [7], [90], [5, 5], [3, 1, 40, 17], [33, 64]], ids=str)
@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
@pytest.mark.parametrize("bias_kind", BIASES)
def test_encoder_tokens_attend_within_their_sequence(
    lengths: list[int], heads: int, kv_heads: int, bias_kind: str
) -> None:
    bias, dense = make_bias(bias_kind, heads, bidirectional=True)
    query = torch.randn(sum(lengths), heads, HEAD_DIM)
    key, value = torch.randn(2, sum(lengths), kv_heads, HEAD_DIM).unbind()
    metadata = plan(BACKEND, AttentionMetadata.for_encoder(lengths))
    out = BACKEND.forward(AttentionCall(query, key, value, None, metadata, AttentionType.ENCODER, SCALE, bias))
    assert out.shape == query.shape
    for start, end in pairwise([0, *accumulate(lengths)]):
        rows = slice(start, end)
        expected = attend_naively(query[rows], key[rows], value[rows], SCALE, causal=False, bias=dense)
        torch.testing.assert_close(out[rows].double(), expected, rtol=1e-5, atol=1e-5)


def test_encoder_takes_slices_of_a_stacked_projection() -> None:
    qkv = torch.randn(9, 3 * 4 * HEAD_DIM)
    query, key, value = (part.unflatten(-1, (4, HEAD_DIM)) for part in qkv.chunk(3, dim=-1))
    metadata = plan(BACKEND, AttentionMetadata.for_encoder([4, 5]))
    out = BACKEND.forward(AttentionCall(query, key, value, None, metadata, AttentionType.ENCODER, 1.0, None))
    for rows in (slice(0, 4), slice(4, 9)):
        expected = attend_naively(query[rows], key[rows], value[rows], 1.0, causal=False)
        torch.testing.assert_close(out[rows].double(), expected, rtol=1e-5, atol=1e-5)


def test_sequences_of_a_model_in_int8_are_rounded() -> None:
    lengths = [70, 30]
    query, key, value = torch.randn(3, sum(lengths), 4, HEAD_DIM)
    outputs = []
    for backend in (BACKEND, TorchBackend("int8")):
        metadata = plan(backend, AttentionMetadata.for_encoder(lengths))
        outputs.append(
            backend.forward(AttentionCall(query, key, value, None, metadata, AttentionType.ENCODER, SCALE, None))
        )
    rounded, attend = torch.empty_like(query), ENCODER_ATTENTION.find(quantization="int8")
    assert attend is not None
    for rows in (slice(0, 70), slice(70, None)):
        attend(query[rows], key[rows], value[rows], SCALE, rounded[rows])
    exact, int8 = outputs
    assert torch.equal(int8, rounded)
    assert not torch.equal(exact, rounded)


# --- decoder self-attention ---


@pytest.mark.sampled(7)
@pytest.mark.parametrize("step", DECODER_STEPS.values(), ids=DECODER_STEPS)
@pytest.mark.parametrize("block_size", BLOCK_SIZES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("heads", "kv_heads", "scale"), [(4, 4, SCALE), (4, 2, 1.0)])
@pytest.mark.parametrize("bias_kind", BIASES)
@pytest.mark.parametrize("dtypes", DTYPES, ids=str)
def test_decoder_tokens_attend_to_their_past(
    step: list[tuple[int, int]],
    block_size: int,
    layout: str,
    heads: int,
    kv_heads: int,
    scale: float,
    bias_kind: str,
    dtypes: tuple[torch.dtype, torch.dtype],
) -> None:
    dtype, lengths = dtypes[0], [length for length, _ in step]
    paged = Paged.make(lengths, [length - queries for length, queries in step], block_size, layout, kv_heads, *dtypes)
    after = paged.filled(lengths)
    bias, dense = make_bias(bias_kind, heads, bidirectional=False, dtype=dtype)
    query = torch.randn(sum(queries for _, queries in step), heads, HEAD_DIM, dtype=dtype)
    out = run_decoder_step(BACKEND, paged, step, query, scale, bias)
    assert_same(paged.cache, after)
    start = 0
    for (_, queries), keys, values in zip(step, paged.keys, paged.values, strict=True):
        rows = slice(start, start + queries)
        expected = attend_naively(query[rows], keys, values, scale, causal=True, bias=dense)
        torch.testing.assert_close(out[rows].double(), expected, rtol=1e-5, atol=1e-5)
        start += queries


def test_prefill_then_decode_equals_prefill_of_all() -> None:
    length, prompt = 37, 20
    query = torch.randn(length, 4, HEAD_DIM)
    whole = Paged.make([length], [0], 8, "scattered", 4)
    expected = run_decoder_step(BACKEND, whole, [(length, length)], query, SCALE, None)
    paged = Paged.make([length], [0], 8, "scattered", 4)
    paged.keys, paged.values = whole.keys, whole.values
    pieces = []
    for end, queries in [(prompt, prompt), (prompt + 5, 5), *((end, 1) for end in range(prompt + 6, length + 1))]:
        now = Paged([paged.keys[0][:end]], [paged.values[0][:end]], paged.slots, paged.tables, paged.cache, 8)
        now.slots = [paged.slots[0][:end]]
        pieces.append(run_decoder_step(BACKEND, now, [(end, queries)], query[end - queries : end], SCALE, None))
    torch.testing.assert_close(torch.cat(pieces), expected, rtol=1e-5, atol=1e-5)


def test_a_table_may_have_blocks_to_spare() -> None:
    step = [(9, 1), (4, 4)]
    paged = Paged.make([9, 4], [8, 0], 4, "contiguous", 4)
    query = torch.randn(5, 4, HEAD_DIM)
    expected = run_decoder_step(BACKEND, paged, step, query, SCALE, None)
    paged.tables = [[*table, 0] for table in paged.tables]
    assert_same(run_decoder_step(BACKEND, paged, step, query, SCALE, None), expected)


@pytest.mark.parametrize("attn_type", [AttentionType.ENCODER, AttentionType.DECODER])
def test_layers_of_one_step_may_have_different_biases(attn_type: AttentionType) -> None:
    step = [(30, 1), (6, 6), (41, 7)] if attn_type is AttentionType.DECODER else [(30, 30), (6, 6), (41, 41)]
    lengths = [length for length, _ in step]
    paged = Paged.make(lengths, lengths, 8, "scattered", 4)
    if attn_type is AttentionType.DECODER:
        metadata = decoder_metadata(BACKEND, paged, step)
    else:
        metadata = plan(BACKEND, AttentionMetadata.for_encoder(lengths))
    newest = [
        torch.cat([x[length - n :] for x, (length, n) in zip(side, step, strict=True)])
        for side in (paged.keys, paged.values)
    ]
    query = torch.randn(len(newest[0]), 4, HEAD_DIM)
    causal = attn_type is AttentionType.DECODER
    for kind in [*BIASES, *BIASES]:  # each kind twice, the second time with other numbers
        bias, dense = make_bias(kind, 4, bidirectional=not causal)
        out = BACKEND.forward(AttentionCall(query, *newest, paged.cache, metadata, attn_type, SCALE, bias))
        rows = query.split([queries for _, queries in step])
        expected = torch.cat(
            [
                attend_naively(part, keys, values, SCALE, causal, dense)
                for part, keys, values in zip(rows, paged.keys, paged.values, strict=True)
            ]
        )
        torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)


# --- cross-attention ---


@pytest.mark.sampled(7)
@pytest.mark.parametrize("step", CROSS_STEPS.values(), ids=CROSS_STEPS)
@pytest.mark.parametrize("block_size", BLOCK_SIZES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("heads", "kv_heads", "scale"), [(4, 4, SCALE), (4, 2, 1.0), (6, 1, SCALE)])
@pytest.mark.parametrize("dtypes", DTYPES, ids=str)
def test_decoder_tokens_attend_to_all_of_their_encoder_tokens(
    step: list[Request],
    block_size: int,
    layout: str,
    heads: int,
    kv_heads: int,
    scale: float,
    dtypes: tuple[torch.dtype, torch.dtype],
) -> None:
    dtype, lengths = dtypes[0], [request.length for request in step]
    cached = [0 if request.prefill else request.length for request in step]
    paged = Paged.make(lengths, cached, block_size, layout, kv_heads, *dtypes)
    after = paged.filled(lengths)
    query = torch.randn(sum(request.queries for request in step), heads, HEAD_DIM, dtype=dtype)
    out = run_cross_step(BACKEND, paged, step, query, scale)
    assert_same(paged.cache, after)  # every prefill's slots, and no other
    assert_cross_attention(out, query, paged, step, scale)

    later = [Request(request.length, 1, False) for request in step]
    query = torch.randn(len(later), heads, HEAD_DIM, dtype=dtype)
    out = run_cross_step(BACKEND, paged, later, query, scale)
    assert_same(paged.cache, after)
    assert_cross_attention(out, query, paged, later, scale)


@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
def test_results_do_not_depend_on_where_blocks_lie(heads: int, kv_heads: int) -> None:
    cross_step, self_step = CROSS_STEPS["prefills between"], DECODER_STEPS["all kinds at once"]
    cross_query, self_query = torch.randn(8, heads, HEAD_DIM), torch.randn(16, heads, HEAD_DIM)
    cross_results, self_results = [], []
    for block_size in BLOCK_SIZES:
        for layout in LAYOUTS:
            torch.manual_seed(1)  # the same keys and values, drawn after the tables
            paged = Paged.make([r.length for r in cross_step], [0] * 4, block_size, "contiguous", kv_heads)
            torch.manual_seed(2)
            moved = Paged.make([r.length for r in cross_step], [0] * 4, block_size, layout, kv_heads)
            moved.keys, moved.values = paged.keys, paged.values
            moved.cache = moved.filled([0 if r.prefill else r.length for r in cross_step])
            cross_results.append(run_cross_step(BACKEND, moved, cross_step, cross_query))

            torch.manual_seed(3)
            paged = Paged.make([n for n, _ in self_step], [0] * 5, block_size, "contiguous", kv_heads)
            torch.manual_seed(4)
            moved = Paged.make([n for n, _ in self_step], [0] * 5, block_size, layout, kv_heads)
            moved.keys, moved.values = paged.keys, paged.values
            moved.cache = moved.filled([n - queries for n, queries in self_step])
            self_results.append(run_decoder_step(BACKEND, moved, self_step, self_query, SCALE, None))
    for results in (cross_results, self_results):
        for result in results[1:]:
            torch.testing.assert_close(result, results[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
@pytest.mark.parametrize("layout", ["contiguous", "two runs"])
def test_decode_makes_no_copy_of_the_cross_cache(heads: int, kv_heads: int, layout: str) -> None:
    step = [Request(1024, 1, False), Request(1500, 1, False)]
    paged = Paged.make([1024, 1500], [1024, 1500], 16, layout, kv_heads, torch.float64)
    query = torch.randn(2, heads, HEAD_DIM, dtype=torch.float64)
    metadata = cross_metadata(BACKEND, paged, step)
    arguments = (query, None, None, paged.cache, metadata, AttentionType.ENCODER_DECODER, SCALE, None)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        BACKEND.forward(AttentionCall(*arguments))
    allocations = [event.nbytes() for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    allocations = [size for size in allocations if size > 0]
    scores = heads * 1500 * query.itemsize
    assert allocations, "the profiler saw nothing"
    assert max(allocations) <= scores


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("bias_kind", BIASES)
def test_half_precision_is_near(dtype: torch.dtype, layout: str, bias_kind: str) -> None:
    tolerance = {torch.float16: 5e-3, torch.bfloat16: 4e-2}[dtype]
    cross_step, self_step = CROSS_STEPS["prefills between"], DECODER_STEPS["all kinds at once"]
    cached = [0 if request.prefill else request.length for request in cross_step]
    paged = Paged.make([request.length for request in cross_step], cached, 8, layout, 2, dtype)
    query = torch.randn(8, 4, HEAD_DIM, dtype=dtype)
    out = run_cross_step(BACKEND, paged, cross_step, query)
    assert out.dtype is dtype
    expected = [
        attend_naively(q[None], paged.keys[index], paged.values[index], SCALE, causal=False)
        for index, q in zip([0, 0, 1, 1, 1, 2, 3, 3], query, strict=True)
    ]
    torch.testing.assert_close(out.double(), torch.cat(expected), rtol=0, atol=tolerance)

    bias, dense = make_bias(bias_kind, 4, bidirectional=False)
    if isinstance(bias, RelativePositionBias):
        bias = RelativePositionBias(bias.table.to(dtype), bias.bidirectional)
    elif bias is not None:
        bias = bias.to(dtype)
    paged = Paged.make([n for n, _ in self_step], [n - queries for n, queries in self_step], 8, layout, 2, dtype)
    query = torch.randn(sum(queries for _, queries in self_step), 4, HEAD_DIM, dtype=dtype)
    out = run_decoder_step(BACKEND, paged, self_step, query, SCALE, bias)
    assert out.dtype is dtype
    start = 0
    for (_, queries), keys, values in zip(self_step, paged.keys, paged.values, strict=True):
        rows = slice(start, start + queries)
        expected_rows = attend_naively(query[rows], keys, values, SCALE, causal=True, bias=dense)
        torch.testing.assert_close(out[rows].double(), expected_rows, rtol=0, atol=tolerance)
        start += queries


def test_unscaled_scores_beyond_half_precision_do_not_overflow() -> None:
    paged = Paged.make([40], [0], 8, "two runs", 1, torch.float16)
    paged.keys = [paged.keys[0].sign() * 64]
    paged.cache = paged.filled([40])
    query = paged.keys[0][:1] * 1.5
    out = run_cross_step(BACKEND, paged, [Request(40, 1, False)], query, scale=2**-10)
    expected = attend_naively(query, paged.keys[0], paged.values[0], 2**-10, causal=False)
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=1e-2)


def test_keys_in_hand_are_those_that_a_later_step_reads() -> None:
    paged = Paged.make([40], [0], 8, "two runs", 2, cache_dtype=torch.float16)
    written = torch.randn(2, 40, 2, HEAD_DIM)
    written[1, 3, 1, :2] = torch.tensor([1e6, -1e6])  # beyond float16
    query = torch.randn(40, 4, HEAD_DIM)
    paged.keys, paged.values = [written[0]], [written[1]]
    out = run_decoder_step(BACKEND, paged, [(40, 40)], query, SCALE, None)
    stored = written.clamp(-65504, 65504).half()
    assert_same(paged.cache.flatten(1, 2)[:, paged.slots[0]], stored)
    expected = attend_naively(query, *stored, SCALE, causal=True)
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)


# --- soft caps and windows ---


@pytest.mark.parametrize("lengths", [[1], [90], [3, 40, 17]], ids=str)
@pytest.mark.parametrize(("heads", "kv_heads"), HEADS)
@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("bias_kind", BIASES)
def test_encoders_have_soft_caps_and_windows(
    lengths: list[int], heads: int, kv_heads: int, limits: dict[str, int | float], bias_kind: str
) -> None:
    bias, dense = make_bias(bias_kind, heads, bidirectional=True)
    query = torch.randn(sum(lengths), heads, HEAD_DIM)
    key, value = torch.randn(2, sum(lengths), kv_heads, HEAD_DIM).unbind()
    metadata = plan(BACKEND, AttentionMetadata.for_encoder(lengths))
    out = BACKEND.forward(
        AttentionCall(query, key, value, None, metadata, AttentionType.ENCODER, SCALE, bias, **limits)
    )
    for start, end in pairwise([0, *accumulate(lengths)]):
        rows = slice(start, end)
        expected = attend_naively(query[rows], key[rows], value[rows], SCALE, False, dense, **limits)
        torch.testing.assert_close(out[rows].double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("step", DECODER_STEPS.values(), ids=DECODER_STEPS)
@pytest.mark.parametrize(("block_size", "layout"), [(1, "scattered"), (16, "two runs")])
@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("bias_kind", BIASES)
@pytest.mark.parametrize("dtypes", DTYPES, ids=str)
def test_decoders_have_soft_caps_and_windows(
    step: list[tuple[int, int]],
    block_size: int,
    layout: str,
    limits: dict[str, int | float],
    bias_kind: str,
    dtypes: tuple[torch.dtype, torch.dtype],
) -> None:
    lengths = [length for length, _ in step]
    paged = Paged.make(lengths, [length - queries for length, queries in step], block_size, layout, 2, *dtypes)
    bias, dense = make_bias(bias_kind, 4, bidirectional=False, dtype=dtypes[0])
    query = torch.randn(sum(queries for _, queries in step), 4, HEAD_DIM, dtype=dtypes[0])
    out = run_decoder_step(BACKEND, paged, step, query, SCALE, bias, **limits)
    rows = query.split([queries for _, queries in step])
    expected = [
        attend_naively(part, keys, values, SCALE, True, dense, **limits)
        for part, keys, values in zip(rows, paged.keys, paged.values, strict=True)
    ]
    torch.testing.assert_close(out.double(), torch.cat(expected), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("step", CROSS_STEPS.values(), ids=CROSS_STEPS)
@pytest.mark.parametrize(("block_size", "layout"), [(1, "scattered"), (16, "contiguous")])
def test_cross_attention_has_soft_caps(step: list[Request], block_size: int, layout: str) -> None:
    cached = [0 if request.prefill else request.length for request in step]
    paged = Paged.make([request.length for request in step], cached, block_size, layout, 2)
    query = torch.randn(sum(request.queries for request in step), 4, HEAD_DIM)
    out = run_cross_step(BACKEND, paged, step, query, softcap=0.7)
    assert_cross_attention(out, query, paged, step, SCALE, softcap=0.7)


def test_layers_of_one_step_may_have_different_windows() -> None:
    step = [(30, 1), (6, 6), (41, 7)]
    lengths = [length for length, _ in step]
    paged = Paged.make(lengths, lengths, 8, "scattered", 4)
    metadata = decoder_metadata(BACKEND, paged, step)
    newest = [
        torch.cat([x[length - n :] for x, (length, n) in zip(side, step, strict=True)])
        for side in (paged.keys, paged.values)
    ]
    query = torch.randn(len(newest[0]), 4, HEAD_DIM)
    parts = query.split([queries for _, queries in step])
    for window in (5, None, 3, 5):
        given = (query, *newest, paged.cache, metadata, AttentionType.DECODER, SCALE, None)
        out = BACKEND.forward(AttentionCall(*given, window=window))
        expected = [
            attend_naively(part, keys, values, SCALE, True, window=window)
            for part, keys, values in zip(parts, paged.keys, paged.values, strict=True)
        ]
        torch.testing.assert_close(out.double(), torch.cat(expected), rtol=1e-5, atol=1e-5)


def test_many_queries_with_a_soft_cap() -> None:
    """More than have their scores computed at a time."""
    length = CAPPED_QUERIES + 30
    paged = Paged.make([length], [0], 16, "contiguous", 1)
    query = torch.randn(length, 2, HEAD_DIM)
    out = run_decoder_step(BACKEND, paged, [(length, length)], query, SCALE, None, softcap=0.7)
    expected = attend_naively(query, paged.keys[0], paged.values[0], SCALE, True, softcap=0.7)
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)


# --- runs of slots ---


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[int], int, int]:
    block_size = draw(st.integers(1, 9))
    pieces = draw(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 6)), max_size=6))
    table = list(dict.fromkeys(first + i for first, count in pieces for i in range(count)))
    return table, draw(st.integers(0, len(table) * block_size)), block_size


@given(tables())
def test_runs_are_maximal_and_cover_the_slots_in_order(case: tuple[list[int], int, int]) -> None:
    table, num_slots, block_size = case
    runs = slot_runs(table, num_slots, block_size)
    covered = [slot for run in runs for slot in range(run.start, run.stop)]
    assert covered == slots_of(table, num_slots, block_size)
    assert all(run.start < run.stop and run.step is None for run in runs)
    assert all(left.stop != right.start for left, right in pairwise(runs))


def test_runs_of_the_documented_example() -> None:
    assert slot_runs([4, 5, 6, 9], 60, 16) == [slice(64, 112), slice(144, 156)]


@pytest.mark.parametrize("kind", ["tensor", "relative"])
@pytest.mark.parametrize("step", [[(1100, 1)], [(1100, 66)]], ids=["one query", "many"])
def test_a_bias_that_hides_whole_pieces_and_tiles(kind: str, step: list[tuple[int, int]]) -> None:
    bias, dense = hiding_bias(kind, 1100, num_heads=3)
    ((length, queries),) = step
    paged = Paged.make([length], [length - queries], 16, "scattered", 3)
    query = torch.randn(queries, 3, HEAD_DIM)
    out = run_decoder_step(BACKEND, paged, step, query, SCALE, bias)
    expected = attend_naively(query, paged.keys[0], paged.values[0], SCALE, causal=True, bias=dense)
    assert (expected[:, 0] == 0).all()
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)


def test_cross_attentions_work_is_made_anew_when_a_request_comes_goes_or_moves() -> None:
    backend, tables, lengths, starts = TorchBackend(), [[0, 1], [2]], [20, 16], [0, 1, 2]
    metadata = AttentionMetadata(
        16, cross_block_tables=tables, cross_seq_lens=lengths, cross_query_start_loc=starts, query_start_loc=starts
    )

    def work() -> PagedWork:
        made: PagedWork = plan(backend, metadata).plan.cross_work
        return made

    before = work()
    assert work() is before
    for changed, value in ((tables[1], 7), (lengths, 15), (starts, 3)):
        changed[-1] = value
        now = work()
        assert now is not before
        assert now is work()
        before = now
    assert (before.num_slots, before.most_keys, before.num_rows) == (8 * 16, 20, 3)
    assert copy.deepcopy(backend).name == backend.name
