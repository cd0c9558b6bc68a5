"""Steps of attention over a paged cache for the backends' tests, and a loop in float64 that computes the same."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor
from transformers.models.t5.modeling_t5 import T5Attention

from transept.core.attention.backends.base import AttentionBackend, AttentionCall
from transept.core.attention.biases import AttentionBias, RelativePositionBias
from transept.core.attention.metadata import AttentionMetadata, AttentionType

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # of the backends for GPUs
HEAD_DIM = 16
MAX_LENGTH = 160  # of any sequence in the tables below
BLOCK_SIZES = [1, 8, 16, 64]
LAYOUTS = ["contiguous", "scattered", "two runs"]
HEADS = [(4, 4), (4, 2), (6, 1)]  # query heads, key and value heads
BIASES = ["no bias", "tensor", "relative"]
SCALE = HEAD_DIM**-0.5
LIMITS = {  # small enough to change much: scores are around 1, sequences up to MAX_LENGTH long
    "soft cap": {"softcap": 0.7},
    "window of 1": {"window": 1},
    "window": {"window": 7},
    "window of two sides": {"window": (9, 4)},
    "soft cap and wide window": {"softcap": 0.7, "window": 70},
}


def attend_naively(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    causal: bool,
    bias: Tensor | None = None,
    *,
    softcap: float | None = None,
    window: int | tuple[int, int] | None = None,
) -> Tensor:
    """One sequence, whose queries are the last of its positions: [queries, heads, dim] in float64."""
    group = query.shape[1] // key.shape[1]  # query heads that share a key head
    query, key, value = query.double(), key.double(), value.double()
    key, value = key.repeat_interleave(group, dim=1), value.repeat_interleave(group, dim=1)
    first = len(key) - len(query)
    out = torch.zeros_like(query)
    for row in range(len(query)):
        own = first + row
        seen = slice(0, own + 1 if causal else len(key))
        if isinstance(window, int):
            window = (window - 1, 0) if causal else (window, window)
        if window is not None:
            seen = slice(max(own - window[0], 0), min(own + window[1] + 1, seen.stop))
        scores = torch.einsum("hd,khd->hk", query[row], key[seen]) * scale
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        if bias is not None:
            scores = scores + bias[:, first + row, seen]
        weights = torch.softmax(scores, dim=-1).nan_to_num(0.0)  # zeros where a bias hides every key
        out[row] = torch.einsum("hk,khd->hd", weights, value[seen])
    return out


def make_bias(
    kind: str, num_heads: int, bidirectional: bool, dtype: torch.dtype = torch.float32
) -> tuple[AttentionBias | None, Tensor | None]:
    """A bias as the backend takes it, and the same as [heads, MAX_LENGTH, MAX_LENGTH] in float64."""
    if kind == "no bias":
        return None, None
    if kind == "tensor":
        tensor = torch.randn(num_heads, MAX_LENGTH, MAX_LENGTH, dtype=dtype)
        return tensor, tensor.double()
    table = torch.randn(32, num_heads, dtype=dtype)
    positions = torch.arange(MAX_LENGTH)
    buckets = T5Attention._relative_position_bucket(positions[None, :] - positions[:, None], bidirectional, 32, 128)
    return RelativePositionBias(table, bidirectional), table.double()[buckets].permute(2, 0, 1)


def hiding_bias(kind: str, length: int, num_heads: int = 2) -> tuple[AttentionBias, Tensor]:
    """A bias that hides keys far away from all heads but the last, and all keys from the first; and the same dense."""
    if kind == "relative":
        table = torch.randn(32, num_heads)
        table[-1, :-1] = float("-inf")  # distances from 114 on
        table[:, 0] = float("-inf")
        bias = RelativePositionBias(table, bidirectional=False)
        return bias, bias.materialize(torch.arange(length), torch.arange(length)).double()
    tensor = torch.randn(num_heads, length, length)
    tensor[:-1, :, : length - 90] = float("-inf")
    tensor[0] = float("-inf")
    return tensor, tensor.double()


def make_tables(lengths: list[int], block_size: int, layout: str) -> tuple[list[list[int]], int]:
    """Block tables for sequences of these lengths, foreign blocks between them, and the number of blocks in all."""
    counts = [-(-length // block_size) for length in lengths]
    num_blocks = 2 * sum(counts) + 2 * len(counts) + 1
    if layout == "scattered":
        blocks = torch.randperm(num_blocks).tolist()
        return [[blocks.pop() for _ in range(count)] for count in counts], num_blocks
    tables, start = [], 1
    for count in counts:
        table = list(range(start, start + count))
        if layout == "two runs":
            middle = count // 2
            table = table[middle:] + table[:middle]
        tables.append(table)
        start += count + 1
    return tables, num_blocks


def slots_of(table: list[int], length: int, block_size: int) -> list[int]:
    return [table[position // block_size] * block_size + position % block_size for position in range(length)]


@dataclass
class Paged:
    """Sequences of random keys and values with a cache that holds their first tokens, and NaN in every other slot."""

    keys: list[Tensor]  # each [length, kv heads, dim]
    values: list[Tensor]
    slots: list[list[int]]
    tables: list[list[int]]
    cache: Tensor  # [2, blocks, block size, kv heads, dim]
    block_size: int

    @classmethod
    def make(
        cls,
        lengths: list[int],
        cached: list[int],
        block_size: int,
        layout: str,
        kv_heads: int,
        dtype: torch.dtype = torch.float32,
        cache_dtype: torch.dtype | None = None,  # as dtype, or what the keys and values are rounded to
    ) -> Paged:
        tables, num_blocks = make_tables(lengths, block_size, layout)
        cache_dtype = cache_dtype or dtype

        def draw(length: int) -> Tensor:
            return torch.randn(length, kv_heads, HEAD_DIM, dtype=dtype).to(cache_dtype).to(dtype)

        paged = cls(
            keys=[draw(length) for length in lengths],
            values=[draw(length) for length in lengths],
            slots=[slots_of(table, length, block_size) for table, length in zip(tables, lengths, strict=True)],
            tables=tables,
            cache=torch.empty(0),
            block_size=block_size,
        )
        paged.cache = torch.full((2, num_blocks, block_size, kv_heads, HEAD_DIM), float("nan"), dtype=cache_dtype)
        paged.cache = paged.filled(cached)
        return paged

    def filled(self, counts: list[int]) -> Tensor:
        """What the cache holds once each sequence's first tokens are in it."""
        cache = self.cache.clone()
        flat = cache.flatten(1, 2)
        for keys, values, slots, count in zip(self.keys, self.values, self.slots, counts, strict=True):
            flat[0, slots[:count]] = keys[:count].to(cache.dtype)
            flat[1, slots[:count]] = values[:count].to(cache.dtype)
        return cache


def plan(backend: AttentionBackend, metadata: AttentionMetadata) -> AttentionMetadata:
    backend.plan(metadata)
    return metadata


def assert_same(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


DECODER_STEPS = {  # (length, queries) a sequence
    "whole prompts": [(5, 5), (1, 1), (30, 30)],
    "one token each": [(1, 1), (2, 1), (16, 1), (17, 1), (129, 1)],
    "several at the end of a context": [(20, 3), (65, 16), (33, 2)],
    "all kinds at once": [(19, 1), (6, 6), (130, 1), (40, 7), (1, 1)],
}


def decoder_metadata(backend: AttentionBackend, paged: Paged, step: list[tuple[int, int]]) -> AttentionMetadata:
    new_slots = [slot for slots, (length, n) in zip(paged.slots, step, strict=True) for slot in slots[length - n :]]
    return plan(
        backend,
        AttentionMetadata(
            block_size=paged.block_size,
            query_start_loc=[0, *accumulate(queries for _, queries in step)],
            seq_lens=[length for length, _ in step],
            slot_mapping=torch.tensor(new_slots),
            block_tables=paged.tables,
        ),
    )


def run_decoder_step(
    backend: AttentionBackend,
    paged: Paged,
    step: list[tuple[int, int]],
    query: Tensor,
    scale: float,
    bias: AttentionBias | None,
    **limits: float | int,
) -> Tensor:
    def newest(tensors: list[Tensor]) -> Tensor:
        return torch.cat([tensor[length - n :] for tensor, (length, n) in zip(tensors, step, strict=True)])

    metadata = decoder_metadata(backend, paged, step)
    key, value = newest(paged.keys), newest(paged.values)
    return backend.forward(
        AttentionCall(query, key, value, paged.cache, metadata, AttentionType.DECODER, scale, bias, **limits)
    )


@dataclass(frozen=True)
class Request:
    length: int  # encoder tokens
    queries: int  # decoder tokens of all its sequences in this step
    prefill: bool


CROSS_STEPS = {
    "one prefill": [Request(50, 4, True)],
    "one running": [Request(50, 1, False)],
    "prefills only": [Request(3, 2, True), Request(150, 4, True), Request(16, 1, True)],
    "running only": [Request(3, 1, False), Request(150, 1, False), Request(64, 1, False)],
    "several sequences share a table": [Request(33, 5, False), Request(65, 3, False)],
    "prefills first": [Request(20, 3, True), Request(31, 2, True), Request(70, 1, False)],
    "prefills last": [Request(70, 1, False), Request(20, 3, True), Request(31, 2, True)],
    "prefills between": [Request(70, 2, False), Request(20, 3, True), Request(9, 1, False), Request(90, 2, True)],
}


def cross_metadata(backend: AttentionBackend, paged: Paged, step: list[Request]) -> AttentionMetadata:
    return plan(
        backend,
        AttentionMetadata(
            block_size=paged.block_size,
            cross_query_start_loc=[0, *accumulate(request.queries for request in step)],
            cross_seq_lens=[request.length for request in step],
            cross_block_tables=paged.tables,
        ),
    )


def run_cross_step(
    backend: AttentionBackend,
    paged: Paged,
    step: list[Request],
    query: Tensor,
    scale: float = SCALE,
    softcap: float | None = None,
) -> Tensor:
    new = [index for index, request in enumerate(step) if request.prefill]
    if new:
        key, value = (torch.cat([each[index] for index in new]) for each in (paged.keys, paged.values))
        slots = torch.tensor([slot for index in new for slot in paged.slots[index]], device=key.device)
        backend.write(key, value, paged.cache, slots)
    metadata = cross_metadata(backend, paged, step)
    given = (query, None, None, paged.cache, metadata, AttentionType.ENCODER_DECODER, scale, None)
    return backend.forward(AttentionCall(*given, softcap=softcap))


def assert_cross_attention(
    out: Tensor,
    query: Tensor,
    paged: Paged,
    step: list[Request],
    scale: float,
    tolerance: float = 1e-5,
    softcap: float | None = None,
) -> None:
    start = 0
    for request, keys, values in zip(step, paged.keys, paged.values, strict=True):
        rows = slice(start, start + request.queries)
        # whole, not causal: queries stand beside the keys, not at their end
        each = [attend_naively(q[None], keys, values, scale, causal=False, softcap=softcap) for q in query[rows]]
        expected = torch.cat(each)
        torch.testing.assert_close(out[rows].double(), expected, rtol=tolerance, atol=tolerance)
        start += request.queries
