"""``x @ weight.T`` by AMX for a weight in int8 and many rows, whose numbers of 16 bits are halved.

Called by `int8_product`. The sums are the same integers as those of its tiles, and so is what comes out.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import prange

from transept.core.kernels.float_product import Floats
from transept.core.kernels.launch import kernel
from transept.core.kernels.matrix_tiles import (
    BLOCK,
    BYTES_DEEP,
    SIDE,
    TILE_BYTES,
    begin,
    end,
    halve_row,
    multiply_integers,
    regroup_panel,
    scale_row,
)
from transept.core.kernels.sharing import WORKERS, nothing_taken, take

ROWS = 512  # of a piece of work
PANELS = 4  # of a piece of work

Bytes = npt.NDArray[np.int8]


@kernel(parallel=True)
def multiply(rounded: npt.NDArray[np.int16], steps: Floats, values: Bytes, scales: Floats, out: Floats) -> None:
    """Write ``(rounded * steps) @ (values * scales).T`` to out.

    rounded: int16 [rows, depth], depth a multiple of BYTES_DEEP. steps: float32 [rows]. values: [panels, depth / 2,
    BLOCK, 2]. scales: of all columns of the panels.
    """
    num_rows, depth = rounded.shape
    blocks, panels = (num_rows + BLOCK - 1) // BLOCK, len(values)
    halves = np.empty(blocks * BLOCK * 2 * depth, np.int8)
    for block in prange(blocks):
        halve_rows(rounded, np.int64(block) * BLOCK, halves)
    parts, groups = (num_rows + ROWS - 1) // ROWS, (panels + PANELS - 1) // PANELS
    taken = nothing_taken()
    for _ in prange(WORKERS):
        piece = take(taken)
        while piece < parts * groups:
            row, panel = piece // groups * ROWS, piece % groups * PANELS
            stop_row, stop_panel = min(row + ROWS, num_rows), min(panel + PANELS, panels)
            multiply_halves(halves, steps, values, scales, out, row, stop_row, panel, stop_panel)
            piece = take(taken)


@kernel(exact=True)
def halve_rows(rounded: npt.NDArray[np.int16], first_row: int, halves: Bytes) -> None:
    """A block of rows as tiles, 16 rows by 16 rows; those beyond the last one are zeros.

    halves: of all rows, for each 16 of them [depth / BYTES_DEEP, upper and lower, 16, BYTES_DEEP].
    """
    num_rows, depth = rounded.shape
    numbers = rounded.reshape(-1)
    for row in range(first_row, first_row + BLOCK):
        place = row // SIDE * SIDE * 2 * depth + row % SIDE * BYTES_DEEP
        for step in range(depth // BYTES_DEEP):
            tile = place + step * 2 * TILE_BYTES
            if row < num_rows:
                halve_row(numbers, row * depth + step * BYTES_DEEP, halves, tile)
            else:
                for i in range(BYTES_DEEP):
                    halves[tile + i] = 0
                    halves[tile + TILE_BYTES + i] = 0


@kernel(exact=True)
def multiply_halves(
    halves: Bytes,
    steps: Floats,
    values: Bytes,
    scales: Floats,
    out: Floats,
    first_row: int,
    stop_row: int,
    first_panel: int,
    stop_panel: int,
) -> None:
    """Some rows of some panels. values: of a weight, [panels, pairs, BLOCK, 2]; for the rest see `int8_product`."""
    depth, packed = 2 * values.shape[1], values.reshape(-1)
    regrouped, sums = np.empty(depth * BLOCK, np.int8), np.empty(2 * BLOCK * BLOCK, np.int32)
    begin()
    for panel in range(first_panel, stop_panel):
        regroup_panel(packed, panel * depth * BLOCK, depth // BYTES_DEEP, regrouped, 0)
        for row in range(first_row, stop_row, BLOCK):
            a, stride = row * 2 * depth, SIDE * 2 * depth
            multiply_integers(halves, a, stride, regrouped, 0, depth // BYTES_DEEP, sums, 0)
            _scale(sums, steps, scales, out, row, min(row + BLOCK, stop_row), panel * BLOCK)
    end()


@kernel(exact=True)  # the scales in this order
def _scale(
    sums: npt.NDArray[np.int32], steps: Floats, scales: Floats, out: Floats, row: int, stop_row: int, column: int
) -> None:
    """Write a block's sums to out. scales: of all outputs of the panels."""
    numbers, num_out = out.reshape(-1), out.shape[1]
    if column + BLOCK <= num_out:
        for r in range(stop_row - row):
            scale_row(sums, r * BLOCK, steps[row + r], scales, column, numbers, (row + r) * num_out + column)
    else:
        apart = np.empty(BLOCK, np.float32)
        for r in range(stop_row - row):
            scale_row(sums, r * BLOCK, steps[row + r], scales, column, apart, 0)
            for c in range(num_out - column):
                out[row + r, column + c] = apart[c]
