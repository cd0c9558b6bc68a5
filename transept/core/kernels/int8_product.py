"""``x @ weight.T`` for a weight in int8, with a scale for each output.

Called by `transept.core.layers.stored_weights` and `decoder_layer`. Each row of x is rounded to as many steps as a sum
of 32 bits has room for, at most 32,767 either way (4128 where a row has 4096 numbers), and the sums are integers: what
comes out of a row is the same to the last bit whatever rows are beside it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from numba import prange
from torch import Tensor

from transept.core.kernels import matrix_int8
from transept.core.kernels.float_product import (
    BLOCK,
    MOST_AT_ONCE,
    NO_BIAS,
    Floats,
    add_bias,
    check_rows,
    panel_range,
    pieces_of,
)
from transept.core.kernels.integer_tiles import tile, tiles_beside
from transept.core.kernels.launch import kernel
from transept.core.kernels.matrix_tiles import BYTES_DEEP, available
from transept.core.kernels.pointwise import TO_INTEGER
from transept.core.kernels.sharing import WORKERS, nothing_taken, take
from transept.core.kernels.tiles import BESIDE, COLUMNS, ROWS

LARGEST = 127  # of a weight in int8
MATRICES = available()
FEW = 8  # rows, which one thread rounds
PACKED_AT_A_TIME = 64  # panels


class PackedInt8(NamedTuple):
    """A weight [out, in] as tiles read it.

    values: int8 [panels, pairs, COLUMNS, 2], the last panel and pair filled up with zeros. scales: float32
    [panels * COLUMNS], of one step of an output's weights. num_outputs: out.
    """

    values: npt.NDArray[np.int8]
    scales: Floats
    num_outputs: int

    def outputs(self, chosen: slice) -> PackedInt8:
        """Some of the outputs; the slice begins where a panel does."""
        first, stop = panel_range(chosen, self.num_outputs)
        panels = slice(first // COLUMNS, -(-stop // COLUMNS))
        return PackedInt8(self.values[panels], self.scales[first : panels.stop * COLUMNS], stop - first)


def pack(weight: Tensor) -> PackedInt8:
    """Round a weight, [out, in], each output by its largest number."""
    num_out, num_in = weight.shape
    panels, pairs = -(-num_out // COLUMNS), -(-num_in // 2)
    values, scales = torch.empty(panels, pairs, COLUMNS, 2, dtype=torch.int8), torch.empty(panels * COLUMNS)
    for first in range(0, panels, PACKED_AT_A_TIME):
        some = slice(first, min(first + PACKED_AT_A_TIME, panels))
        outputs = slice(some.start * COLUMNS, some.stop * COLUMNS)
        filled = torch.zeros(outputs.stop - outputs.start, 2 * pairs)
        part = weight[outputs]
        filled[: len(part), :num_in] = part
        scales[outputs] = filled.abs().amax(1) / LARGEST
        steps = scales[outputs].clamp(min=torch.finfo(torch.float32).tiny)
        rounded = filled.div_(steps[:, None]).round_().to(torch.int8)
        values[some] = rounded.view(-1, COLUMNS, pairs, 2).transpose(1, 2)
    return PackedInt8(values.numpy(), scales.numpy(), num_out)


def rows_of(packed: PackedInt8, indices: Tensor, num_in: int) -> Tensor:
    """Some rows of the weight, float32 [indices, in]. Raises IndexError for one that it has not."""
    check_rows(indices, packed.num_outputs)
    values, scales = torch.from_numpy(packed.values), torch.from_numpy(packed.scales)
    rows = values[indices // COLUMNS, :, indices % COLUMNS].flatten(1)[:, :num_in]
    return rows * scales[indices][:, None]


@kernel(parallel=True)
def multiply(x: Floats, weight: PackedInt8, bias: Floats, out: Floats) -> None:
    """Write ``x @ weight.T + bias`` to out. bias: [out], or empty."""
    num_rows = len(x)
    panels, depth = weight.values.shape[0], 2 * weight.values.shape[1]
    rounded = np.empty((num_rows, depth), np.int16)
    steps = np.empty(num_rows, np.float32)
    most = min(32767, (2**31 - 1) // (LARGEST * depth))
    if num_rows <= FEW:  # threads would take longer to begin
        for row in range(num_rows):
            steps[row] = round_row(x[row], rounded[row], most)
    else:
        for row in prange(num_rows):
            steps[row] = round_row(x[row], rounded[row], most)
    group, parts = pieces_of(num_rows)
    num_pieces = (panels + group - 1) // group * parts
    taken = nothing_taken()
    workers = num_pieces if parts == 1 else WORKERS
    for worker in prange(workers):
        piece = np.int64(worker) if parts == 1 else take(taken)
        while piece < num_pieces:
            panel, row = piece // parts * group, piece % parts * MOST_AT_ONCE
            stop_row, stop_panel = min(row + MOST_AT_ONCE, num_rows), min(panel + group, panels)
            _multiply(rounded, steps, weight, bias, out, row, stop_row, panel, stop_panel)
            piece = num_pieces if parts == 1 else take(taken)


@kernel(exact=True)
def round_row(row: Floats, out: npt.NDArray[np.int16], most: int) -> np.float32:
    """Round a row to multiples of a step, at most so many of them either way. Returns the step."""
    top = np.int32(0)
    bits = row.view(np.int32)
    for i in range(len(row)):
        top = max(top, np.int32(bits[i] & np.int32(0x7FFFFFFF)))  # the order of positive floats is that of their bits
    highest = np.int32(top).view(np.float32)
    factor = np.float32(most) / highest if top > 0 else np.float32(0)
    shifted = np.empty(len(row), np.float32)
    for i in range(len(row)):
        shifted[i] = row[i] * factor + TO_INTEGER
    bits = shifted.view(np.int32)
    for i in range(len(row)):
        out[i] = np.int16(bits[i])
    for i in range(len(row), len(out)):
        out[i] = 0
    return highest / np.float32(most)


@kernel(exact=True)  # the scales in this order, whatever the number of rows
def _multiply(
    rounded: npt.NDArray[np.int16],
    steps: Floats,
    weight: PackedInt8,
    bias: Floats,
    out: Floats,
    first_row: int,
    stop_row: int,
    first_panel: int,
    stop_panel: int,
) -> None:
    """Some rows of some panels."""
    depth, num_out = rounded.shape[1], weight.num_outputs
    numbers, packed, flat = rounded.reshape(-1), weight.values.reshape(-1), out.reshape(-1)
    apart = np.empty(COLUMNS, np.float32)  # a row of the last panel, where that is filled up
    whole = min(stop_panel, num_out // COLUMNS)
    for block in range(first_row, stop_row, BLOCK):
        stop = min(block + BLOCK, stop_row)
        alone = first_panel
        if stop - block <= BESIDE:  # two streams are read faster than one
            alone = whole - (whole - first_panel) % 2
            for panel in range(first_panel, alone, 2):
                count, a, b = stop - block, block * depth, panel * depth * COLUMNS
                column, place = panel * COLUMNS, block * num_out + panel * COLUMNS
                tiles_beside(
                    count, numbers, a, depth, packed, b, steps, block, weight.scales, column, flat, place, num_out
                )
        for panel in range(alone, whole):
            column, b = panel * COLUMNS, panel * depth * COLUMNS
            for row in range(block, stop, ROWS):
                count, a, place = min(ROWS, stop - row), row * depth, row * num_out + column
                tile(count, numbers, a, depth, packed, b, steps, row, weight.scales, column, flat, place, num_out)
    if whole < stop_panel:
        column, b = whole * COLUMNS, whole * depth * COLUMNS
        for row in range(first_row, stop_row):
            tile(1, numbers, row * depth, depth, packed, b, steps, row, weight.scales, column, apart, 0, COLUMNS)
            for i in range(num_out - column):
                out[row, column + i] = apart[i]
    if bias.size:
        add_bias(out, bias, first_row, stop_row, first_panel, stop_panel)


@kernel(parallel=True)
def _round_rows(x: Floats, rounded: npt.NDArray[np.int16], steps: Floats, most: int) -> None:
    for row in prange(len(x)):
        steps[row] = round_row(x[row], rounded[row], most)


def linear(x: Tensor, weight: PackedInt8, bias: Tensor | None) -> Tensor:
    """x: float32 [rows, in] on the CPU. bias: [out]. Returns [rows, out]."""
    num_rows, depth = x.shape[0], 2 * weight.values.shape[1]
    out = torch.empty(num_rows, weight.num_outputs)
    if MATRICES and num_rows > MOST_AT_ONCE and depth % BYTES_DEEP == 0:
        rounded, steps = np.empty((num_rows, depth), np.int16), np.empty(num_rows, np.float32)
        _round_rows(x.contiguous().numpy(), rounded, steps, min(32767, (2**31 - 1) // (LARGEST * depth)))
        matrix_int8.multiply(rounded, steps, weight.values, weight.scales, out.numpy())
        if bias is not None:
            out += bias
    else:
        multiply(x.contiguous().numpy(), weight, NO_BIAS if bias is None else bias.numpy(), out.numpy())
    return out
