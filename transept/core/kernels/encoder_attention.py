"""Attention of all tokens of a sequence over each other, without a bias, as in most encoders.

Called by the `torch` backend. PyTorch's own asks MKL for the products of small blocks, with which it does not reach
the rate of large ones; here they are made of tiles, for which keys and values are packed once. Queries are columns: so
their softmax takes as many of them at a time as a vector has numbers. docs/performance.md has
the figures.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import prange
from torch import Tensor

from transept.core.kernels.column_softmax import highest, weigh
from transept.core.kernels.launch import kernel, runs_on
from transept.core.kernels.sharing import WORKERS, nothing_taken, take
from transept.core.kernels.tiles import COLUMNS, ROWS, turned_tile

FEWEST_TOKENS = 64  # for which it gains; shorter ones were not measured
CHUNK = 128  # keys whose weights stay in the first cache level while they are multiplied with their values
LOG2_E = 1.4426950408889634

Floats = npt.NDArray[np.float32]


def serves(query: Tensor) -> bool:
    """Whether it computes the attention of such queries, [tokens, heads, dim] of one sequence, and gains by it."""
    return runs_on(query) and query.shape[0] >= FEWEST_TOKENS


def attend(query: Tensor, key: Tensor, value: Tensor, scale: float, out: Tensor) -> None:
    """Write the attention of one sequence to out.

    query, out: [tokens, heads, dim]. key, value: [tokens, kv_heads, dim]. All are float32 on the CPU; see `serves`.
    Raises IndexError for other shapes.
    """
    check(query, key, value, out)
    _attend(query.numpy(), key.numpy(), value.numpy(), scale, out.numpy())


def check(query: Tensor, key: Tensor, value: Tensor, out: Tensor) -> None:
    """Raise IndexError where the shapes are not those of one sequence's attention; see `attend`."""
    tokens, heads, dim = query.shape
    expected = (tokens, key.shape[1], dim)
    if query.shape != out.shape or key.shape != expected or value.shape != expected or heads % key.shape[1]:
        shapes = ", ".join(str([*each.shape]) for each in (query, key, value, out))
        raise IndexError(f"queries, keys, values and output of one sequence do not belong together: {shapes}")


@kernel(parallel=True)
def _attend(query: Floats, key: Floats, value: Floats, scale: float, out: Floats) -> None:
    tokens, heads, dim = query.shape
    kv_heads = key.shape[1]
    tiles = (tokens + ROWS - 1) // ROWS
    keys = np.empty((kv_heads, tokens * dim), np.float32)
    values = np.empty((kv_heads, tokens * dim), np.float32)
    for index in prange(kv_heads * tiles):
        head, first = index // tiles, index % tiles * ROWS
        _pack(key, value, head, first, min(first + ROWS, tokens), keys[head], values[head])

    blocks = (tokens + COLUMNS - 1) // COLUMNS
    factor = np.float32(scale * LOG2_E)  # powers of 2, not of e
    taken = nothing_taken()
    for _ in prange(WORKERS):
        index = take(taken)
        while index < heads * blocks:
            head, first = index // blocks, index % blocks * COLUMNS
            kv_head = head // (heads // kv_heads)
            _attend_block(query, keys[kv_head], values[kv_head], factor, head, first, out)
            index = take(taken)


@kernel()
def _pack(key: Floats, value: Floats, head: int, first: int, stop: int, keys: Floats, values: Floats) -> None:
    """Put some keys of a head, and their values, where tiles read them in order.

    keys: for each ROWS tokens [dim, ROWS]; values: for each ROWS dimensions [tokens, ROWS].
    """
    tokens, dim = key.shape[0], key.shape[2]
    count = stop - first
    if count == ROWS:  # then the inner loop's length is known as it is compiled
        for d in range(dim):
            for i in range(ROWS):
                keys[first * dim + d * ROWS + i] = key[first + i, head, d]
    else:
        for d in range(dim):
            for i in range(count):
                keys[first * dim + d * count + i] = key[first + i, head, d]
    whole = dim // ROWS * ROWS
    for token in range(first, stop):
        for part in range(0, whole, ROWS):
            for i in range(ROWS):
                values[part * tokens + token * ROWS + i] = value[token, head, part + i]
        for i in range(dim - whole):
            values[whole * tokens + token * (dim - whole) + i] = value[token, head, whole + i]


@kernel()
def _attend_block(
    query: Floats, keys: Floats, values: Floats, factor: np.float32, head: int, first: int, out: Floats
) -> None:
    """The attention of COLUMNS queries of a head from `first` on, each of which is a column of what is computed.

    keys, values: as `_pack` leaves them. factor: what a score is multiplied with.
    """
    tokens, dim = query.shape[0], query.shape[2]
    count = min(COLUMNS, tokens - first)
    queries = np.zeros(dim * COLUMNS, np.float32)
    for i in range(count):
        for d in range(dim):
            queries[d * COLUMNS + i] = query[first + i, head, d] * factor
    scores = np.empty(tokens * COLUMNS, np.float32)
    for token in range(0, tokens, ROWS):
        rows = min(ROWS, tokens - token)
        turned_tile(rows, keys, token * dim, rows, queries, 0, dim, scores, token * COLUMNS, COLUMNS, 1)
    tops, totals = np.empty(COLUMNS, np.float32), np.zeros(COLUMNS, np.float32)
    highest(scores, 0, tokens, tops)
    sums = np.empty(dim * COLUMNS, np.float32)
    for chunk in range(0, tokens, CHUNK):
        depth, begins = min(CHUNK, tokens - chunk), np.int64(chunk == 0)
        weigh(scores, chunk * COLUMNS, depth, tops, totals)
        for part in range(0, dim, ROWS):
            rows = min(ROWS, dim - part)
            a, b = part * tokens + chunk * rows, chunk * COLUMNS
            turned_tile(rows, values, a, rows, scores, b, depth, sums, part * COLUMNS, COLUMNS, begins)
    for i in range(COLUMNS):
        totals[i] = np.float32(1) / totals[i] if totals[i] != 0 else np.float32(0)
    for d in range(dim):
        for i in range(COLUMNS):
            sums[d * COLUMNS + i] *= totals[i]
    for i in range(count):
        for d in range(dim):
            out[first + i, head, d] = sums[d * COLUMNS + i]
