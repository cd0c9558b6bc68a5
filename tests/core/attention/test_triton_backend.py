"""The triton backend against a loop in float64; where there is no GPU, in Triton's interpreter."""

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
    LIMITS,
    SCALE,
    Paged,
    Request,
    assert_cross_attention,
    assert_same,
    attend_naively,
    hiding_bias,
    make_bias,
    plan,
    run_cross_step,
    run_decoder_step,
)
from torch import Tensor

from transept.core.attention.backends.base import AttentionCall
from transept.core.attention.backends.torch import TorchBackend
from transept.core.attention.backends.triton import TritonBackend
from transept.core.attention.backends.xformers import XformersBackend
from transept.core.attention.biases import RelativePositionBias
from transept.core.attention.metadata import AttentionMetadata, AttentionType
from transept.core.kernels.gpu.kv_cache import FP8, write

BACKEND = TritonBackend()
DTYPES = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}  # and their tolerances
PIECE = 512 if DEVICE == "cuda" else 128  # keys a program; shorter where an interpreter reads them
LENGTHS = [1, 63, 64, 65, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE - 36]  # around the ends of tiles and of pieces
pytestmark = [
    pytest.mark.skipif(
        bool(TritonBackend.reasons_against(torch.device(DEVICE), torch.float32, 64, 16)),
        reason="Triton is not installed",
    ),
    pytest.mark.usefixtures("triton_looks_once"),
]


def pairwise_of(shapes: list[tuple[object, ...]]) -> list[object]:
    """(a shape, a bias, a dtype): every two of them together; what is left of the product is slow."""
    return [
        pytest.param(*shape, bias, dtype, marks=[pytest.mark.slow] if sum(places) % 2 else [])
        for places, shape, bias, dtype in (
            ((i, j, k), shape, bias, dtype)
            for i, shape in enumerate(shapes)
            for j, bias in enumerate(BIASES)
            for k, dtype in enumerate(DTYPES)
        )
    ]


@pytest.fixture(autouse=True)
def _on_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("transept.core.kernels.gpu.attention.PIECE", PIECE)
    torch.manual_seed(0)
    with torch.device(DEVICE):
        yield


def assert_near(out: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    assert out.dtype is dtype
    torch.testing.assert_close(out.double(), expected, rtol=DTYPES[dtype], atol=DTYPES[dtype])


@pytest.mark.parametrize(
    ("heads", "kv_heads", "lengths", "bias_kind", "dtype"),
    pairwise_of([(2, 2, [90, 1]), (3, 1, [64, 65, 7])]),
    ids=str,
)
def test_encoder_tokens_attend_within_their_sequence(
    heads: int, kv_heads: int, lengths: list[int], bias_kind: str, dtype: torch.dtype
) -> None:
    bias, dense = make_bias(bias_kind, heads, bidirectional=True, dtype=dtype)
    sizes = [heads * HEAD_DIM, kv_heads * HEAD_DIM, kv_heads * HEAD_DIM]
    stacked = torch.randn(sum(lengths), sum(sizes), dtype=dtype).split(sizes, dim=1)
    query, key, value = (part.unflatten(-1, (-1, HEAD_DIM)) for part in stacked)  # slices, as models make them
    metadata = plan(BACKEND, AttentionMetadata.for_encoder(lengths))
    out = BACKEND.forward(AttentionCall(query, key, value, None, metadata, AttentionType.ENCODER, SCALE, bias))
    for start, end in pairwise([0, *accumulate(lengths)]):
        rows = slice(start, end)
        expected = attend_naively(query[rows], key[rows], value[rows], SCALE, causal=False, bias=dense)
        assert_near(out[rows], expected, dtype)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("step", DECODER_STEPS.values(), ids=DECODER_STEPS)
@pytest.mark.parametrize(
    ("block_size", "heads", "kv_heads", "scale", "bias_kind", "dtype"),
    pairwise_of([(16, 2, 2, SCALE), (64, 4, 2, 1.0)]),
    ids=str,
)
def test_decoder_tokens_attend_to_their_past(
    step: list[tuple[int, int]],
    block_size: int,
    heads: int,
    kv_heads: int,
    scale: float,
    bias_kind: str,
    dtype: torch.dtype,
) -> None:
    lengths = [length for length, _ in step]
    paged = Paged.make(
        lengths, [length - queries for length, queries in step], block_size, "scattered", kv_heads, dtype
    )
    after = paged.filled(lengths)
    bias, dense = make_bias(bias_kind, heads, bidirectional=False, dtype=dtype)
    query = torch.randn(sum(queries for _, queries in step), heads, HEAD_DIM, dtype=dtype)
    out = run_decoder_step(BACKEND, paged, step, query, scale, bias)
    assert_same(paged.cache, after)
    start = 0
    for (_, queries), keys, values in zip(step, paged.keys, paged.values, strict=True):
        rows = slice(start, start + queries)
        assert_near(out[rows], attend_naively(query[rows], keys, values, scale, causal=True, bias=dense), dtype)
        start += queries


@pytest.mark.sampled(7)
@pytest.mark.parametrize("step", CROSS_STEPS.values(), ids=CROSS_STEPS)
@pytest.mark.parametrize(
    ("block_size", "dtype"), [(16, torch.float32), (64, torch.float16), (16, torch.bfloat16)], ids=str
)
def test_decoder_tokens_attend_to_all_of_their_encoder_tokens(
    step: list[Request], block_size: int, dtype: torch.dtype
) -> None:
    lengths = [request.length for request in step]
    cached = [0 if request.prefill else request.length for request in step]
    paged = Paged.make(lengths, cached, block_size, "scattered", 2, dtype)
    after = paged.filled(lengths)
    query = torch.randn(sum(request.queries for request in step), 2, HEAD_DIM, dtype=dtype)
    out = run_cross_step(BACKEND, paged, step, query)
    assert_same(paged.cache, after)
    assert_cross_attention(out, query, paged, step, SCALE, DTYPES[dtype])


@pytest.mark.sampled(7)
@pytest.mark.parametrize("block_size", [16, 64])
@pytest.mark.parametrize("bias_kind", ["no bias", "relative"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_long_sequences_are_put_together_from_pieces(block_size: int, bias_kind: str, dtype: torch.dtype) -> None:
    """One query each, then the last 70 of the longest, whose first keys are beyond every tile's distance."""
    for most in (1, 70):
        step = [(length, min(most, length)) for length in LENGTHS]
        assert_as_in_float64(step, LENGTHS, block_size, 2, bias_kind, dtype)


@pytest.mark.parametrize("bias_kind", ["no bias", "relative"])
@pytest.mark.parametrize("heads", [2, 3])  # of which a program takes two, and one
def test_many_queries_have_longer_pieces(heads: int, bias_kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transept.core.kernels.gpu.attention.MANY_PROGRAMS", 2)
    monkeypatch.setattr("transept.core.kernels.gpu.attention.LONG_PIECE", 2 * PIECE)
    lengths = [1, 2 * PIECE, 3 * PIECE - 36]
    assert_as_in_float64([(length, 1) for length in lengths], lengths, 16, heads, bias_kind, torch.float32)


def assert_as_in_float64(
    step: list[tuple[int, int]], lengths: list[int], block_size: int, heads: int, bias_kind: str, dtype: torch.dtype
) -> None:
    """Self-attention of a step, beside PyTorch's in float64. step: each sequence's length and its queries."""
    bias = None
    if bias_kind == "relative":
        bias = RelativePositionBias(torch.randn(32, heads, dtype=dtype), bidirectional=False)
    paged = Paged.make(lengths, lengths, block_size, "two runs", heads, dtype)
    query = torch.randn(sum(queries for _, queries in step), heads, HEAD_DIM, dtype=dtype)
    out = run_decoder_step(BACKEND, paged, step, query, SCALE, bias)
    wide = None if bias is None else RelativePositionBias(bias.table.double(), bidirectional=False)
    cache = Paged(
        [keys.double() for keys in paged.keys],
        [values.double() for values in paged.values],
        *(paged.slots, paged.tables, paged.cache.double(), block_size),
    )
    assert_near(out, run_decoder_step(TorchBackend(), cache, step, query.double(), SCALE, wide), dtype)


@pytest.mark.sampled(7)
@pytest.mark.parametrize(("heads", "kv_heads", "lengths"), [(2, 2, [90, 1]), (3, 1, [145, 65, 7])])
@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize(
    ("bias_kind", "dtype"),
    [("no bias", torch.float32), ("relative", torch.float16), ("tensor", torch.float32), ("no bias", torch.bfloat16)],
    ids=str,
)
def test_encoders_have_soft_caps_and_windows(
    heads: int, kv_heads: int, lengths: list[int], limits: dict[str, int | float], bias_kind: str, dtype: torch.dtype
) -> None:
    bias, dense = make_bias(bias_kind, heads, bidirectional=True, dtype=dtype)
    query = torch.randn(sum(lengths), heads, HEAD_DIM, dtype=dtype)
    key, value = torch.randn(2, sum(lengths), kv_heads, HEAD_DIM, dtype=dtype).unbind()
    metadata = plan(BACKEND, AttentionMetadata.for_encoder(lengths))
    out = BACKEND.forward(
        AttentionCall(query, key, value, None, metadata, AttentionType.ENCODER, SCALE, bias, **limits)
    )
    for start, end in pairwise([0, *accumulate(lengths)]):
        rows = slice(start, end)
        expected = attend_naively(query[rows], key[rows], value[rows], SCALE, False, dense, **limits)
        assert_near(out[rows], expected, dtype)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("step", DECODER_STEPS.values(), ids=DECODER_STEPS)
@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize(
    ("bias_kind", "dtype"),
    [("no bias", torch.float32), ("relative", torch.float16), ("tensor", torch.float32)],
    ids=str,
)
def test_decoders_have_soft_caps_and_windows(
    step: list[tuple[int, int]], limits: dict[str, int | float], bias_kind: str, dtype: torch.dtype
) -> None:
    lengths = [length for length, _ in step]
    paged = Paged.make(lengths, [length - queries for length, queries in step], 16, "scattered", 2, dtype)
    bias, dense = make_bias(bias_kind, 4, bidirectional=False, dtype=dtype)
    query = torch.randn(sum(queries for _, queries in step), 4, HEAD_DIM, dtype=dtype)
    out = run_decoder_step(BACKEND, paged, step, query, SCALE, bias, **limits)
    rows = query.split([queries for _, queries in step])
    for part, result, keys, values in zip(rows, out.split(list(map(len, rows))), paged.keys, paged.values, strict=True):
        assert_near(result, attend_naively(part, keys, values, SCALE, True, dense, **limits), dtype)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("step", CROSS_STEPS.values(), ids=CROSS_STEPS)
def test_cross_attention_has_soft_caps(step: list[Request]) -> None:
    cached = [0 if request.prefill else request.length for request in step]
    paged = Paged.make([request.length for request in step], cached, 16, "scattered", 2)
    query = torch.randn(sum(request.queries for request in step), 4, HEAD_DIM)
    out = run_cross_step(BACKEND, paged, step, query, softcap=0.7)
    assert_cross_attention(out, query, paged, step, SCALE, softcap=0.7)


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
def test_xformers_leaves_soft_caps_and_windows_to_triton(limits: dict[str, int | float]) -> None:
    step = DECODER_STEPS["all kinds at once"]
    lengths = [length for length, _ in step]
    paged = Paged.make(lengths, lengths, 64, "scattered", 2)
    query = torch.randn(sum(queries for _, queries in step), 4, HEAD_DIM)
    out = [
        run_decoder_step(backend, paged, step, query, SCALE, None, **limits) for backend in (BACKEND, XformersBackend())
    ]
    assert torch.equal(*out)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("window", [1, 40, PIECE, PIECE + 1, 4 * PIECE])
def test_pieces_and_tiles_outside_of_a_window_are_left_out(window: int) -> None:
    """One query each, then the last 70 of the longest: windows that begin in any piece, and before the sequence."""
    paged = Paged.make(LENGTHS, LENGTHS, 16, "two runs", 2)
    for step in ([(length, 1) for length in LENGTHS], [(length, min(70, length)) for length in LENGTHS]):
        query = torch.randn(sum(queries for _, queries in step), 2, HEAD_DIM)
        out = run_decoder_step(BACKEND, paged, step, query, SCALE, None, softcap=0.7, window=window)
        rows = query.split([queries for _, queries in step])
        expected = [
            attend_naively(part, keys, values, SCALE, True, softcap=0.7, window=window)
            for part, keys, values in zip(rows, paged.keys, paged.values, strict=True)
        ]
        assert_near(out, torch.cat(expected), torch.float32)


def in_fp8(paged: Paged, dtype: torch.dtype) -> None:
    """Let the cache hold fp8, and the sequences numbers that it holds."""
    paged.keys, paged.values = ([each.to(FP8).to(dtype) for each in side] for side in (paged.keys, paged.values))
    paged.cache = paged.cache.to(FP8)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("bias_kind", ["no bias", "relative"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_cache_in_fp8(bias_kind: str, dtype: torch.dtype) -> None:
    bias, dense = make_bias(bias_kind, 4, bidirectional=False, dtype=dtype)
    step = DECODER_STEPS["all kinds at once"]
    lengths = [length for length, _ in step]
    paged = Paged.make(lengths, [length - queries for length, queries in step], 16, "scattered", 2, dtype)
    in_fp8(paged, dtype)
    query = torch.randn(sum(queries for _, queries in step), 4, HEAD_DIM, dtype=dtype)
    out = run_decoder_step(BACKEND, paged, step, query, SCALE, bias)
    start = 0
    for (_, queries), keys, values in zip(step, paged.keys, paged.values, strict=True):
        rows = slice(start, start + queries)
        assert_near(out[rows], attend_naively(query[rows], keys, values, SCALE, causal=True, bias=dense), dtype)
        start += queries


def test_numbers_beyond_fp8_become_its_largest() -> None:
    cache = torch.zeros(2, 3, 4, 2, HEAD_DIM, dtype=FP8)
    key = torch.full((2, 2, HEAD_DIM), 1e4)
    write(key, -key, cache, torch.tensor([5, 9]))
    written = cache.float().flatten(1, 2)
    assert torch.equal(written[0, [5, 9]], torch.full_like(key, 448.0))
    assert torch.equal(written[1, [5, 9]], torch.full_like(key, -448.0))
    assert written.abs().sum() == 2 * 2 * key.numel() / 2 * 448.0


def test_keys_without_a_slot_are_refused() -> None:
    key, cache = torch.zeros(3, 2, HEAD_DIM), torch.zeros(2, 3, 4, 2, HEAD_DIM)
    for value, slots in ((key, 2), (key[:2], 3)):
        with pytest.raises(IndexError, match=f"keys of 3 and values of {len(value)} tokens do not belong to {slots} s"):
            write(key, value, cache, torch.arange(slots))


@pytest.mark.parametrize("limits", [{}, {"softcap": 0.7, "window": 70}], ids=str)
def test_a_sequence_does_not_depend_on_its_neighbours(limits: dict[str, int | float]) -> None:
    bias = RelativePositionBias(torch.randn(32, 2), bidirectional=False)
    longest = PIECE + 190
    lengths = [40, longest, 130]
    paged = Paged.make(lengths, lengths, 16, "scattered", 2)
    query = torch.randn(3 + 70, 2, HEAD_DIM)
    batched = run_decoder_step(BACKEND, paged, [(40, 1), (longest, 70), (130, 2)], query, SCALE, bias, **limits)
    start = 0
    for index, (length, queries) in enumerate([(40, 1), (longest, 70), (130, 2)]):
        alone = Paged(
            *([side[index]] for side in (paged.keys, paged.values, paged.slots, paged.tables)), paged.cache, 16
        )
        rows = slice(start, start + queries)
        out = run_decoder_step(BACKEND, alone, [(length, queries)], query[rows], SCALE, bias, **limits)
        assert torch.equal(out, batched[rows])
        start += queries


@pytest.mark.parametrize("head_dim", [16, 24, 80, 128])
def test_every_head_size_is_served(head_dim: int) -> None:
    query, key, value = torch.randn(3, 70, 2, head_dim)
    metadata = plan(BACKEND, AttentionMetadata.for_encoder([70]))
    out = BACKEND.forward(AttentionCall(query, key, value, None, metadata, AttentionType.ENCODER, 0.1, None))
    assert_near(out, attend_naively(query, key, value, 0.1, causal=False), torch.float32)


@pytest.mark.parametrize("kind", ["tensor", "relative"])
@pytest.mark.parametrize("queries", [1, 66], ids=["one query", "many"])
def test_a_bias_that_hides_whole_pieces_and_tiles(kind: str, queries: int) -> None:
    length = 2 * PIECE + 76
    bias, dense = hiding_bias(kind, length, num_heads=3)
    paged = Paged.make([length], [length - queries], 16, "scattered", 3)
    query = torch.randn(queries, 3, HEAD_DIM)
    out = run_decoder_step(BACKEND, paged, [(length, queries)], query, SCALE, bias)
    expected = attend_naively(query, paged.keys[0], paged.values[0], SCALE, causal=True, bias=dense)
    assert (expected[:, 0] == 0).all()
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["tensor", "relative"])
def test_an_encoders_bias_that_hides_whole_tiles(kind: str) -> None:
    bias, dense = hiding_bias(kind, 150, num_heads=3)
    query, key, value = torch.randn(3, 150, 3, HEAD_DIM)
    metadata = plan(BACKEND, AttentionMetadata.for_encoder([150]))
    out = BACKEND.forward(AttentionCall(query, key, value, None, metadata, AttentionType.ENCODER, SCALE, bias))
    assert_near(out, attend_naively(query, key, value, SCALE, causal=False, bias=dense), torch.float32)
