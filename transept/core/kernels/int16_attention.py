"""The encoder's attention with queries, keys, values and weights rounded to 16 bits, for models in int8.

Called by the `torch` backend. Such products take half of the time that float32 takes. Each query and key is rounded to
as many steps as a sum of 32 bits has room for (5792 either way where a head has 64 numbers), each number of a head's
values to VALUE_STEPS for all tokens, and a query's weights to as many as then have room. What comes out is the
same to the last bit whatever other sequences are in the batch.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from numba import prange
from torch import Tensor

from transept.core.kernels.column_softmax import Floats, highest, round_pairs, weigh
from transept.core.kernels.encoder_attention import LOG2_E, check
from transept.core.kernels.int8_product import round_row
from transept.core.kernels.integer_tiles import tile
from transept.core.kernels.launch import kernel, runs_on
from transept.core.kernels.sharing import WORKERS, nothing_taken, take
from transept.core.kernels.tiles import COLUMNS, ROWS

VALUE_STEPS = 4095
FEWEST_TOKENS = 256  # for which it gains
MOST_TOKENS = 1 << 16  # of more, a query's weights would have too few steps
LARGEST_SUM = 2**31 - 1
TOKENS = 16  # whose values are turned at a time

Shorts = npt.NDArray[np.int16]


def serves(query: Tensor) -> bool:
    """Whether it computes the attention of such queries, [tokens, heads, dim] of one sequence, and gains by it."""
    return runs_on(query) and FEWEST_TOKENS <= query.shape[0] <= MOST_TOKENS


def attend(query: Tensor, key: Tensor, value: Tensor, scale: float, out: Tensor) -> None:
    """Write the attention of one sequence to out.

    query, out: [tokens, heads, dim]. key, value: [tokens, kv_heads, dim]. All are float32 on the CPU; see `serves`.
    Raises IndexError for other shapes.
    """
    check(query, key, value, out)
    steps = min(32767, math.isqrt(LARGEST_SUM // query.shape[2]))
    _attend(query.numpy(), key.numpy(), value.numpy(), scale, steps, out.numpy())


@kernel(parallel=True)
def _attend(query: Floats, key: Floats, value: Floats, scale: float, steps: int, out: Floats) -> None:
    tokens, heads, dim = query.shape
    kv_heads = key.shape[1]
    keys, key_scales = np.empty((kv_heads, tokens, dim + dim % 2), np.int16), np.empty((kv_heads, tokens), np.float32)
    values, value_scales = (
        np.empty((kv_heads, dim, tokens + tokens % 2), np.int16),
        np.empty((kv_heads, dim), np.float32),
    )
    for head in prange(kv_heads):
        for token in range(tokens):
            key_scales[head, token] = round_row(key[token, head], keys[head, token], steps)
        _round_values(value, head, values[head], value_scales[head])

    blocks = (tokens + COLUMNS - 1) // COLUMNS
    factor = np.float32(scale * LOG2_E)  # powers of 2, not of e
    taken = nothing_taken()
    for _ in prange(WORKERS):
        index = take(taken)
        while index < heads * blocks:
            head, first = index // blocks, index % blocks * COLUMNS
            kv = head // (heads // kv_heads)
            _attend_block(
                query, keys[kv], key_scales[kv], values[kv], value_scales[kv], factor, steps, head, first, out
            )
            index = take(taken)


@kernel(exact=True)
def _round_values(value: Floats, head: int, values: Shorts, scales: Floats) -> None:
    """Round each number of a head's values by its largest of all tokens; values: [dim, tokens], filled up to pairs."""
    tokens, dim = value.shape[0], value.shape[2]
    tops = np.zeros(dim, np.int32)
    for token in range(tokens):
        bits = value[token, head].view(np.int32)
        for d in range(dim):
            tops[d] = max(tops[d], bits[d] & np.int32(0x7FFFFFFF))  # as in round_row
    inverse = np.empty(dim, np.float32)
    highest = tops.view(np.float32)
    for d in range(dim):
        inverse[d] = np.float32(VALUE_STEPS) / highest[d] if tops[d] > 0 else np.float32(0)
        scales[d] = highest[d] / np.float32(VALUE_STEPS)
    for first in range(0, tokens, TOKENS):
        stop = min(first + TOKENS, tokens)
        for d in range(dim):
            for token in range(first, stop):
                values[d, token] = np.int16(np.rint(value[token, head, d] * inverse[d]))
    if tokens % 2:
        for d in range(dim):
            values[d, tokens] = 0


@kernel()
def _attend_block(
    query: Floats,
    keys: Shorts,
    key_scales: Floats,
    values: Shorts,
    value_scales: Floats,
    factor: np.float32,
    steps: int,
    head: int,
    first: int,
    out: Floats,
) -> None:
    """The attention of COLUMNS queries of a head from `first` on, each of which is a column of what is computed.

    keys: [tokens, dim], values: [dim, tokens], each filled up to pairs. factor: what a score is multiplied with.
    """
    tokens, dim = query.shape[0], query.shape[2]
    depth, token_depth = keys.shape[1], values.shape[1]
    count = min(COLUMNS, tokens - first)
    queries, query_scales = np.zeros(depth * COLUMNS, np.int16), np.zeros(COLUMNS, np.float32)
    row = np.empty(depth, np.int16)
    for i in range(count):
        query_scales[i] = round_row(query[first + i, head], row, steps) * factor
        for d in range(0, depth, 2):
            queries[d * COLUMNS + 2 * i] = row[d]
            queries[d * COLUMNS + 2 * i + 1] = row[d + 1]

    scores = np.empty(token_depth * COLUMNS, np.float32)
    flat_keys, flat_values = keys.reshape(-1), values.reshape(-1)
    for token in range(0, tokens, ROWS):
        rows = min(ROWS, tokens - token)
        a, place = token * depth, token * COLUMNS
        tile(rows, flat_keys, a, depth, queries, 0, key_scales, token, query_scales, 0, scores, place, COLUMNS)

    tops, totals = np.empty(COLUMNS, np.float32), np.zeros(COLUMNS, np.float32)
    highest(scores, 0, tokens, tops)
    weigh(scores, 0, tokens, tops, totals)
    for i in range(tokens * COLUMNS, token_depth * COLUMNS):
        scores[i] = np.float32(0)
    room = np.float32(LARGEST_SUM // VALUE_STEPS - tokens)  # each weight may be rounded up
    factors = np.empty(COLUMNS, np.float32)
    for i in range(COLUMNS):
        factors[i] = min(np.float32(32767), room / totals[i])
        totals[i] = np.float32(0)
    weights = np.empty(token_depth * COLUMNS, np.int16)
    round_pairs(scores, 0, token_depth, factors, totals, weights)
    for i in range(COLUMNS):
        totals[i] = np.float32(1) / totals[i] if totals[i] != 0 else np.float32(0)

    sums = np.empty(dim * COLUMNS, np.float32)
    for d in range(0, dim, ROWS):
        rows = min(ROWS, dim - d)
        a, place = d * token_depth, d * COLUMNS
        tile(rows, flat_values, a, token_depth, weights, 0, value_scales, d, totals, 0, sums, place, COLUMNS)
    for i in range(count):
        for d in range(dim):
            out[first + i, head, d] = sums[d * COLUMNS + i]
