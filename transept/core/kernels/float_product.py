"""``x @ weight.T + bias`` for a weight in float32, or in float16 that is widened as it is read.

Called by `transept.core.layers.stored_weights` and `decoder_layer`. Few rows take as long as reading the weight does,
many run at the processor's rate, and what comes out of a row is the same to the last bit whatever rows are beside it.
docs/performance.md has the figures.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from numba import prange
from torch import Tensor

from transept.core.kernels.launch import kernel
from transept.core.kernels.sharing import WORKERS, nothing_taken, take
from transept.core.kernels.tiles import BESIDE, COLUMNS, ROWS, tile, tiles_beside

Floats = npt.NDArray[np.float32]
NO_BIAS = np.empty(0, np.float32)
DEPTH = 64  # numbers of a row that are summed by themselves: sums of sums are rounded less, and a block's stay cached
BLOCK = 48  # rows that are multiplied with DEPTH rows of a panel while both are in the first cache level
CHUNK = 512  # numbers of a row after which a piece of work begins with its first block again
MOST_AT_ONCE = 2 * BLOCK  # rows of a piece of work
OUTPUTS = 64  # of a piece of work
OUTPUTS_OF_MANY = 128  # the same where there are several parts: CHUNK rows of them stay in the second cache level


class PackedFloats(NamedTuple):
    """A weight [out, in] as tiles read it.

    values: float32, or float16 as its bits in uint16, [panels, in, COLUMNS], the last panel filled up with zeros.
    num_outputs: out.
    """

    values: Floats | npt.NDArray[np.uint16]
    num_outputs: int

    def outputs(self, chosen: slice) -> PackedFloats:
        """Some of the outputs; the slice begins where a panel does."""
        first, stop = panel_range(chosen, self.num_outputs)
        return PackedFloats(self.values[first // COLUMNS : -(-stop // COLUMNS)], stop - first)


def panel_range(chosen: slice, num_outputs: int) -> tuple[int, int]:
    """First and last + 1 output of a slice. Raises ValueError where it does not begin with a panel."""
    first, stop, _ = chosen.indices(num_outputs)
    if first % COLUMNS:
        raise ValueError(f"output {first} is not the first of a panel of {COLUMNS}")
    return first, stop


def pack(weight: Tensor, dtype: torch.dtype) -> PackedFloats:
    """A weight, [out, in], in float32 or float16."""
    num_out, num_in = weight.shape
    values = torch.zeros(-(-num_out // COLUMNS), num_in, COLUMNS, dtype=dtype)
    whole = num_out // COLUMNS
    values[:whole] = weight[: whole * COLUMNS].view(whole, COLUMNS, num_in).transpose(1, 2)
    if whole < len(values):
        values[whole, :, : num_out % COLUMNS] = weight[whole * COLUMNS :].t()
    array = values.numpy()
    return PackedFloats(array.view(np.uint16) if dtype is torch.float16 else array, num_out)


def rows_of(packed: PackedFloats, indices: Tensor) -> Tensor:
    """Some rows of the weight, float32 [indices, in]. Raises IndexError for one that it has not."""
    check_rows(indices, packed.num_outputs)
    stored = packed.values.view(np.float16) if packed.values.dtype == np.uint16 else packed.values
    return torch.from_numpy(stored)[indices // COLUMNS, :, indices % COLUMNS].float()


def check_rows(indices: Tensor, num_rows: int) -> None:
    """Raise IndexError for a row beyond the first num_rows; with panels filled up, PyTorch would find one there."""
    if len(indices):
        lowest, highest = map(int, indices.aminmax())
        if lowest < 0 or highest >= num_rows:
            raise IndexError(f"rows {lowest} to {highest} are asked for of a weight with {num_rows}")


@kernel(parallel=True, exact=True)
def multiply(x: Floats, weight: PackedFloats, bias: Floats, out: Floats) -> None:
    """Write ``x @ weight.T + bias`` to out. bias: [out], or empty. x, out: contiguous."""
    num_rows, panels = len(x), len(weight.values)
    group, parts = pieces_of(num_rows)
    num_pieces = (panels + group - 1) // group * parts
    taken = nothing_taken()
    workers = num_pieces if parts == 1 else WORKERS
    for worker in prange(workers):
        piece = np.int64(worker) if parts == 1 else take(taken)
        while piece < num_pieces:
            panel, row = piece // parts * group, piece % parts * MOST_AT_ONCE
            stop_row, stop_panel = min(row + MOST_AT_ONCE, num_rows), min(panel + group, panels)
            _multiply(x, weight, bias, out, row, stop_row, panel, stop_panel)
            piece = num_pieces if parts == 1 else take(taken)


@kernel()
def pieces_of(num_rows: int) -> tuple[int, int]:
    """Of the work of a product: how many panels a piece has, and in how many parts of MOST_AT_ONCE the rows are cut."""
    outputs = OUTPUTS if num_rows <= MOST_AT_ONCE else OUTPUTS_OF_MANY
    return outputs // COLUMNS, (num_rows + MOST_AT_ONCE - 1) // MOST_AT_ONCE


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
) -> None:
    """Some rows of some panels."""
    num_in, num_out = x.shape[1], weight.num_outputs
    numbers, packed, sums = x.reshape(-1), weight.values.reshape(-1), out.reshape(-1)
    whole = min(stop_panel, num_out // COLUMNS)
    for chunk in range(0, num_in, CHUNK):
        for block in range(first_row, stop_row, BLOCK):
            stop = min(block + BLOCK, stop_row)
            alone = first_panel
            if stop - block <= BESIDE:  # two streams are read faster than one
                alone = whole - (whole - first_panel) % 2
                for panel in range(first_panel, alone, 2):
                    for start in range(chunk, min(chunk + CHUNK, num_in), DEPTH):
                        a, b, depth = (
                            block * num_in + start,
                            (panel * num_in + start) * COLUMNS,
                            min(DEPTH, num_in - start),
                        )
                        place, begins = block * num_out + panel * COLUMNS, np.int64(start == 0)
                        tiles_beside(stop - block, numbers, a, num_in, packed, b, depth, sums, place, num_out, begins)
            for panel in range(alone, whole):
                for start in range(chunk, min(chunk + CHUNK, num_in), DEPTH):
                    b, depth = (panel * num_in + start) * COLUMNS, min(DEPTH, num_in - start)
                    for row in range(block, stop, ROWS):
                        count, a, place = min(ROWS, stop - row), row * num_in + start, row * num_out + panel * COLUMNS
                        tile(count, numbers, a, num_in, packed, b, depth, sums, place, num_out, np.int64(start == 0))
    if whole < stop_panel and num_in:  # the last panel, which is filled up, goes to a tile apart
        column, apart = whole * COLUMNS, np.empty(COLUMNS, np.float32)
        for row in range(first_row, stop_row):
            for start in range(0, num_in, DEPTH):
                a, b, depth = row * num_in + start, (whole * num_in + start) * COLUMNS, min(DEPTH, num_in - start)
                tile(1, numbers, a, num_in, packed, b, depth, apart, 0, COLUMNS, np.int64(start == 0))
            for i in range(num_out - column):
                out[row, column + i] = apart[i]
    if bias.size:
        add_bias(out, bias, first_row, stop_row, first_panel, stop_panel)


@kernel(exact=True)
def add_bias(out: Floats, bias: Floats, first_row: int, stop_row: int, first_panel: int, stop_panel: int) -> None:
    """Add the outputs' bias to some rows of some panels."""
    for row in range(first_row, stop_row):
        for column in range(first_panel * COLUMNS, min(stop_panel * COLUMNS, len(bias))):
            out[row, column] += bias[column]


def linear(x: Tensor, weight: PackedFloats, bias: Tensor | None) -> Tensor:
    """x: float32 [rows, in] on the CPU. bias: [out]. Returns [rows, out]."""
    out = torch.empty(x.shape[0], weight.num_outputs)
    multiply(x.contiguous().numpy(), weight, NO_BIAS if bias is None else bias.numpy(), out.numpy())
    return out
