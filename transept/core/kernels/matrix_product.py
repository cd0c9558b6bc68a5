"""``x @ weight.T + bias`` by AMX, for weights in float16 that hundreds of rows are multiplied with.

Called by `transept.core.layers.stored_weights` for encoders of sound. The weight is stored as for `float_product`, and
split into bfloat16 a few rows at a time: for hundreds of rows that is soon done, for few it takes longer than the
product. Here, too, what comes out of a row is the same to the last bit whatever rows are beside it.
docs/performance.md has the figures.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from numba import prange
from torch import Tensor

from transept.core.kernels.float_product import Floats, PackedFloats
from transept.core.kernels.launch import kernel
from transept.core.kernels.matrix_tiles import (
    BLOCK,
    DEPTH,
    HALF_PARTS,
    PARTS,
    SIDE,
    TILE,
    begin,
    end,
    multiply_block,
    split_panel,
    split_row,
)
from transept.core.kernels.sharing import WORKERS, nothing_taken, take

CHUNK = 16  # steps of DEPTH numbers that are summed by themselves
ROWS = 384  # of a piece of work: with CHUNK steps they stay in the second cache level
PANELS = 24  # of a piece of work

Shorts = npt.NDArray[np.uint16]


@kernel(parallel=True, exact=True)
def multiply(x: Floats, weight: PackedFloats, bias: Floats, out: Floats) -> None:
    """Write ``x @ weight.T + bias`` to out.

    x, out: contiguous; x's width is a multiple of DEPTH. weight: in float16. bias: of each column of the panels.
    """
    num_rows, panels = len(x), len(weight.values)
    parts, groups = (num_rows + ROWS - 1) // ROWS, (panels + PANELS - 1) // PANELS
    taken = nothing_taken()
    for _ in prange(WORKERS):
        piece = take(taken)
        if piece < parts * groups:
            split = np.empty(min(ROWS, num_rows + BLOCK) * CHUNK * DEPTH * PARTS, np.uint16)
            while piece < parts * groups:
                row, panel = piece // groups * ROWS, piece % groups * PANELS
                stop_row, stop_panel = min(row + ROWS, num_rows), min(panel + PANELS, panels)
                _multiply(x, weight, bias, out, row, stop_row, panel, stop_panel, split)
                piece = take(taken)


@kernel(exact=True)
def _multiply(
    x: Floats,
    weight: PackedFloats,
    bias: Floats,
    out: Floats,
    first_row: int,
    stop_row: int,
    first_panel: int,
    stop_panel: int,
    split: Shorts,
) -> None:
    """Some rows of some panels. split: room for the rows as tiles."""
    num_in, num_out = x.shape[1], weight.num_outputs
    numbers, packed, flat = x.reshape(-1), weight.values.reshape(-1), out.reshape(-1)
    panel_parts = np.empty(2 * CHUNK * HALF_PARTS * TILE, np.uint16)
    nothing, apart = np.zeros(BLOCK, np.float32), np.empty(BLOCK * BLOCK, np.float32)
    begin()
    for chunk in range(0, num_in, CHUNK * DEPTH):
        steps = min(CHUNK, (num_in - chunk) // DEPTH)
        stride = steps * PARTS * TILE
        _split_rows(numbers, num_in, chunk, steps, first_row, stop_row, split)
        for panel in range(first_panel, stop_panel):
            split_panel(packed, (panel * num_in + chunk) * BLOCK, steps, panel_parts, 0)
            column = panel * BLOCK
            for row in range(first_row, stop_row, BLOCK):
                a = (row - first_row) // SIDE * stride
                if chunk == 0 and row + BLOCK <= stop_row and column + BLOCK <= num_out:
                    place = row * num_out + column
                    multiply_block(split, a, stride, panel_parts, 0, steps, bias, column, flat, place, num_out)
                    continue
                first, at = (bias, column) if chunk == 0 else (nothing, 0)
                multiply_block(split, a, stride, panel_parts, 0, steps, first, at, apart, 0, BLOCK)
                _put(apart, out, row, min(row + BLOCK, stop_row), column, chunk > 0)
    end()


@kernel(exact=True)
def _split_rows(x: Floats, num_in: int, chunk: int, steps: int, first_row: int, stop_row: int, split: Shorts) -> None:
    """A part of some rows as tiles, 16 rows by 16 rows; those of a block beyond the last one are zeros."""
    blocks = (stop_row - first_row + BLOCK - 1) // BLOCK
    for row in range(blocks * BLOCK):
        place = row // SIDE * steps * PARTS * TILE + row % SIDE * DEPTH
        if first_row + row < stop_row:
            for step in range(steps):
                number = (first_row + row) * num_in + chunk + step * DEPTH
                split_row(x, number, split, place + step * PARTS * TILE)
        else:
            for tile in range(steps * PARTS):
                for i in range(DEPTH):
                    split[place + tile * TILE + i] = 0


@kernel(exact=True)
def _put(sums: Floats, out: Floats, row: int, stop_row: int, column: int, adds: bool) -> None:
    """Write a block's sums to out, or add them."""
    columns = min(BLOCK, out.shape[1] - column)
    for r in range(stop_row - row):
        if adds and columns == BLOCK:  # then the loop's length is known as it is compiled
            for c in range(BLOCK):
                out[row + r, column + c] += sums[r * BLOCK + c]
        elif adds:
            for c in range(columns):
                out[row + r, column + c] += sums[r * BLOCK + c]
        else:
            for c in range(columns):
                out[row + r, column + c] = sums[r * BLOCK + c]


def linear(x: Tensor, weight: PackedFloats, bias: Tensor | None) -> Tensor:
    """x: float32 [rows, in] on the CPU. bias: [out]. Returns [rows, out]."""
    num_rows, num_out, panels = x.shape[0], weight.num_outputs, len(weight.values)
    out, biases = torch.empty(num_rows, num_out), torch.zeros(panels * BLOCK)
    if bias is not None:
        biases[:num_out] = bias
    multiply(x.contiguous().numpy(), weight, biases.numpy(), out.numpy())
    return out
