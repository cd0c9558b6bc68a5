"""Attention of few queries over keys and values in a paged cache, read once and in the order in which they lie.

Called by the `torch` backend for the steps that decode. PyTorch's attention takes one head after the other, whose keys
lie a token's width apart; here all heads of a token are read together. Keys are cut into pieces of a fixed length,
each with its own softmax, and the pieces are put together afterwards: so the cores share the work of one sequence,
too, and what comes out does not depend on the other sequences of the step. A key whose bias is minus infinity has no
weight; a query that sees none gets zeros. docs/performance.md has the figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from numba import prange
from torch import Tensor

from transept.core.kernels.key_rows import Sizes, add_values, score
from transept.core.kernels.launch import kernel
from transept.core.kernels.pointwise import exp
from transept.core.kernels.vectors import Stored

MOST_QUERIES = 5  # of a sequence; with more, products of matrices are faster
PIECE = 128  # keys
HIDDEN = np.float32(-1e38)  # the bias of a key that is hidden, and its score, since it is rounded to 1e31
NO_BIAS = np.empty((0, 0), np.float32)


class Pieces(NamedTuple):
    """Which keys which queries look at, for every layer of a step.

    blocks: int64, the block tables of all sequences, one after the other. pieces: int64 [num_pieces, 6], by sequence:
    its table's first index in blocks, the first and last + 1 key, the sequence's first and last + 1 query row, and how
    many keys it has in all. rows: int64 [num_rows, 3], each query row of these sequences with its first and last + 1
    piece. most_queries: of a sequence.

    What `check` compares with the arrays that kernels are given: num_slots, that the cache must have for these blocks;
    num_rows, of the queries; most_keys, of a sequence.
    """

    block_size: int
    blocks: npt.NDArray[np.int64]
    pieces: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int64]
    most_queries: int
    num_slots: int
    num_rows: int
    most_keys: int


def cut_pieces(
    block_size: int, block_tables: Sequence[Sequence[int]], lengths: Sequence[int], rows: Sequence[tuple[int, int]]
) -> Pieces:
    """The work of some sequences. lengths: of their keys. rows: first and last + 1 query row of each.

    Raises IndexError for a table that is too short for its length, a length below 1, and a negative block or row.
    """
    pieces: list[tuple[int, ...]] = []
    by_row: list[tuple[int, ...]] = []
    start = 0
    for table, length, (first, last) in zip(block_tables, lengths, rows, strict=True):
        if not 0 < length <= len(table) * block_size or not 0 <= first <= last:
            raise IndexError(
                f"rows {first} to {last} attend to {length} keys in {len(table)} blocks of {block_size} slots"
            )
        before = len(pieces)
        for key in range(0, length, PIECE):
            pieces.append((start, key, min(key + PIECE, length), first, last, length))
        by_row += [(row, before, len(pieces)) for row in range(first, last)]
        start += len(table)
    blocks = np.fromiter(chain.from_iterable(block_tables), np.int64, count=start)
    if start and blocks.min() < 0:
        raise IndexError(f"a block table holds block {blocks.min()}")
    return Pieces(
        block_size,
        blocks,
        np.array(pieces, np.int64).reshape(-1, 6),
        np.array(by_row, np.int64).reshape(-1, 3),
        most_queries=max((last - first for first, last in rows), default=0),
        num_slots=(int(blocks.max()) + 1) * block_size if start else 0,
        num_rows=max((last for _, last in rows), default=0),
        most_keys=max(lengths, default=0),
    )


def check(work: Pieces, num_rows: int, num_slots: int, bias: npt.NDArray[np.float32]) -> None:
    """Raise IndexError where the work reaches beyond the query's rows, the cache's slots or the bias's distances."""
    if work.num_rows > num_rows or work.num_slots > num_slots:
        raise IndexError(
            f"attention of {work.num_rows} rows over {work.num_slots} slots is asked for, with {num_rows} rows and "
            f"{num_slots} slots"
        )
    if bias.size and work.most_keys > bias.shape[1]:
        raise IndexError(f"the bias reaches {bias.shape[1]} keys back, and a sequence has {work.most_keys}")


def attend(query: Tensor, cache: Tensor, work: Pieces, scale: float, bias: Tensor | None, out: Tensor) -> None:
    """Write the rows of ``work`` of attention's output; every query sees all keys of its sequence.

    query, out: [num_tokens, heads, dim]. cache: [keys and values, slots, kv_heads, dim]. bias: [heads, distances], what
    is added to a score, its last column for a sequence's last key. All float32 on the CPU, the cache maybe float16.
    Raises IndexError where the work reaches beyond them.
    """
    if not len(work.pieces):
        return
    biases = NO_BIAS if bias is None else finite(bias)
    check(work, min(len(query), len(out)), cache.shape[1], biases)
    attend_rows(query.contiguous().numpy(), array_of(cache), work, scale, biases, out.numpy())


def finite(bias: Tensor) -> npt.NDArray[np.float32]:
    """A bias as `attend_rows` takes it: minus infinity as HIDDEN, whose difference to itself is a number."""
    return bias.clamp(min=float(HIDDEN)).contiguous().numpy()


def array_of(cache: Tensor) -> Stored:
    """A cache as kernels take it, [keys and values, slots, kv_heads, dim]: float32, or float16 as its bits."""
    return cache.numpy() if cache.dtype is torch.float32 else cache.view(torch.uint16).numpy()


@kernel(parallel=True)
def _attend_pieces(
    query: npt.NDArray[np.float32],
    cache: Stored,
    work: Pieces,
    scale: float,
    bias: npt.NDArray[np.float32],
    sums: npt.NDArray[np.float32],
    tops: npt.NDArray[np.float32],
) -> None:
    """sums: [pieces, queries, heads, dim], the values weighted by exp(score - highest score). tops: [pieces, queries,
    heads, 2], that highest score and the sum of the weights.
    """
    for piece in prange(len(work.pieces)):
        _attend_piece(query, cache, work, np.int64(piece), scale, bias, sums[piece], tops[piece])


@kernel()
def _attend_piece(
    query: npt.NDArray[np.float32],
    cache: Stored,
    work: Pieces,
    piece: int,
    scale: float,
    bias: npt.NDArray[np.float32],
    sums: npt.NDArray[np.float32],
    tops: npt.NDArray[np.float32],
) -> None:
    heads, dim = query.shape[1], query.shape[2]
    slots, kv_heads = cache.shape[1], cache.shape[2]
    table, begin, end, first, last, length = work.pieces[piece]
    num_keys, num_queries = end - begin, last - first
    queries, stored, totals = query.reshape(-1), cache.reshape(-1), sums.reshape(-1)
    places = np.empty(num_keys, np.int64)  # of a key's first number
    for key in range(num_keys):
        position = begin + key
        slot = work.blocks[table + position // work.block_size] * work.block_size + position % work.block_size
        places[key] = slot * kv_heads * dim
    weights = np.empty((num_queries, heads, num_keys), np.float32)
    sizes, flat = Sizes(num_queries, heads, heads // kv_heads, dim), weights.reshape(-1)
    score(queries, first * heads * dim, stored, places, sizes, np.float32(scale), flat)
    if bias.size:
        nearest = bias.shape[1] - length + begin  # column of the first key
        for q in range(num_queries):
            for head in range(heads):
                for key in range(num_keys):
                    weights[q, head, key] += bias[head, nearest + key]
    for q in range(num_queries):
        for head in range(heads):
            highest = np.float32(-np.inf)
            for key in range(num_keys):
                highest = max(highest, weights[q, head, key])
            total = np.float32(0)
            for key in range(num_keys):
                weight = exp(weights[q, head, key] - highest)
                weights[q, head, key] = weight
                total += weight
            tops[q, head, 0], tops[q, head, 1] = highest, total
    for i in range(num_queries * heads * dim):
        totals[i] = 0
    add_values(flat, stored, slots * kv_heads * dim, places, sizes, totals)


@kernel()
def _join(
    work: Pieces,
    sums: npt.NDArray[np.float32],
    tops: npt.NDArray[np.float32],
    out: npt.NDArray[np.float32],
) -> None:
    """The softmax over all pieces of each row, from those over each."""
    heads, dim = out.shape[1], out.shape[2]
    for index in range(len(work.rows)):
        row, first, last = work.rows[index]
        q = row - work.pieces[first, 3]
        for head in range(heads):
            highest = np.float32(-np.inf)
            for piece in range(first, last):
                highest = max(highest, tops[piece, q, head, 0])
            total = np.float32(0)
            for i in range(dim):
                out[row, head, i] = 0
            for piece in range(first, last):
                share = exp(tops[piece, q, head, 0] - highest)
                total += share * tops[piece, q, head, 1]
                for i in range(dim):
                    out[row, head, i] += share * sums[piece, q, head, i]
            if highest == HIDDEN:  # it sees no key
                total = np.float32(np.inf)
            for i in range(dim):
                out[row, head, i] /= total


@kernel()
def attend_rows(
    query: npt.NDArray[np.float32],
    cache: Stored,
    work: Pieces,
    scale: float,
    bias: npt.NDArray[np.float32],
    out: npt.NDArray[np.float32],
) -> None:
    """`attend` for arrays; bias is made by `finite`, or NO_BIAS where there is none."""
    heads, dim = query.shape[1], query.shape[2]
    sums = np.empty((len(work.pieces), work.most_queries, heads, dim), np.float32)
    tops = np.empty((len(work.pieces), work.most_queries, heads, 2), np.float32)
    _attend_pieces(query, cache, work, scale, bias, sums, tops)
    _join(work, sums, tops, out)
