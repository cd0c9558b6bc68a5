"""Attention of all tokens of a sequence over each other, without a bias, as in most encoders.

Called by the `torch` backend. PyTorch's own asks MKL for the products of small blocks, with which it does not reach
the rate of large ones; here they are made of tiles, for which keys and values are packed once. docs/performance.md has
the figures.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import prange
from torch import Tensor

from transept.core.kernels.launch import kernel, runs_on
from transept.core.kernels.pointwise import exp2
from transept.core.kernels.tiles import COLUMNS, ROWS, highest, tile_6

FEWEST_TOKENS = 64  # for which it gains; shorter ones were not measured
BLOCK = 8 * ROWS  # queries of a piece of work; their scores of 1500 keys, 280 KiB, stay in the second cache level
LOG2_E = 1.4426950408889634

Floats = npt.NDArray[np.float32]


def serves(query: Tensor) -> bool:
    """Whether it computes the attention of such queries, [tokens, heads, dim] of one sequence, and gains by it."""
    return runs_on(query) and query.shape[0] >= FEWEST_TOKENS and query.shape[2] % COLUMNS == 0


def attend(query: Tensor, key: Tensor, value: Tensor, scale: float, out: Tensor) -> None:
    """Write the attention of one sequence to out.

    query, out: [tokens, heads, dim]. key, value: [tokens, kv_heads, dim]. All are float32 on the CPU; see `serves`.
    """
    _attend(query.numpy(), key.numpy(), value.numpy(), scale, out.numpy())


@kernel(parallel=True)
def _attend(query: Floats, key: Floats, value: Floats, scale: float, out: Floats) -> None:
    tokens, heads, dim = query.shape
    kv_heads = key.shape[1]
    panels = (tokens + COLUMNS - 1) // COLUMNS  # of keys; the last one is filled with zeros
    width, parts = panels * COLUMNS, dim // COLUMNS
    keys = np.empty((kv_heads, panels, dim, COLUMNS), np.float32)
    values = np.empty((kv_heads, parts, tokens, COLUMNS), np.float32)
    for index in prange(kv_heads * panels):
        head, first = index // panels, index % panels * COLUMNS
        _pack(key[:, head], value[:, head], first, keys[head], values[head])

    blocks = (tokens + BLOCK - 1) // BLOCK
    factor = np.float32(scale * LOG2_E)  # powers of 2, not of e
    for index in prange(heads * blocks):
        head, first = index // blocks, index % blocks * BLOCK
        kv_head = head // (heads // kv_heads)
        count = min(BLOCK, tokens - first)
        rows = (count + ROWS - 1) // ROWS * ROWS
        queries = np.zeros((rows, dim), np.float32)
        for row in range(count):
            for i in range(dim):
                queries[row, i] = query[first + row, head, i] * factor
        scores = np.empty((rows, width), np.float32)
        _multiply(queries, keys[kv_head], scores)
        scores[:, tokens:] = -np.inf
        totals, flat = np.empty(count, np.float32), scores.reshape(-1)
        for row in range(count):
            totals[row] = _weigh(scores[row, :tokens], highest(flat, row * width, width))
        sums = np.empty((rows, dim), np.float32)
        _multiply(scores, values[kv_head], sums)
        for row in range(count):
            for i in range(dim):
                out[first + row, head, i] = sums[row, i] / totals[row]


@kernel()
def _pack(key: Floats, value: Floats, first: int, keys: Floats, values: Floats) -> None:
    """Put a panel of keys, and their values, where tiles read them in order.

    key, value: [tokens, dim]. first: the first key. keys: [panels, dim, COLUMNS]. values: [parts, tokens, COLUMNS].
    """
    panel = keys[first // COLUMNS]
    for i in range(COLUMNS):
        for d in range(len(panel)):
            panel[d, i] = key[first + i, d] if first + i < len(key) else np.float32(0)
    for token in range(first, min(first + COLUMNS, len(value))):
        for part in range(len(values)):
            for d in range(COLUMNS):
                values[part, token, d] = value[token, part * COLUMNS + d]


@kernel()
def _multiply(a: Floats, panels: Floats, out: Floats) -> None:
    """A product with a packed matrix. a: [rows, at least depth], panels: [panels, depth, COLUMNS]."""
    depth, stride, width = panels.shape[1], a.shape[1], out.shape[1]
    numbers, packed, sums = a.reshape(-1), panels.reshape(-1), out.reshape(-1)
    for panel in range(len(panels)):
        for row in range(0, len(a), ROWS):
            first = panel * depth * COLUMNS
            tile_6(numbers, row * stride, stride, packed, first, depth, sums, row * width + panel * COLUMNS, width, 1)


@kernel()
def _weigh(scores: Floats, top: np.float32) -> np.float32:
    """Raise 2 to each score, less the highest, in place. Returns the sum."""
    total = np.float32(0)
    for i in range(len(scores)):
        weight = exp2(scores[i] - top)
        scores[i] = weight
        total += weight
    return total
