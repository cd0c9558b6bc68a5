"""Medians along rows and the cheapest path through a matrix, for the timing of words."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from transept.core.kernels.cpu.library import Int, KernelFunction, Pointer

NEIGHBOURS = 3  # numbers to either side in a median

_medians_of_seven = KernelFunction("transept_medians_of_seven", Pointer, Int, Int, Pointer)
_cheapest_path = KernelFunction("transept_cheapest_path", Pointer, Int, Int, Pointer)


def medians(padded: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return the median of each number and its neighbours in a row. padded: [rows, columns + 2 * NEIGHBOURS].

    Returns [rows, columns].
    """
    padded = np.ascontiguousarray(padded, np.float32)
    rows, columns = padded.shape[0], padded.shape[1] - 2 * NEIGHBOURS
    if columns < 0:
        raise IndexError(f"rows of {padded.shape[1]} numbers have no {2 * NEIGHBOURS + 1} neighbours")
    out = np.empty((rows, columns), np.float32)
    _medians_of_seven(padded.ctypes.data, rows, columns, out.ctypes.data)
    return out


def cheapest_path(cost: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return the cheapest path from the first to the last cell by steps right, down or both, [length, row and column].

    cost: [rows, columns], neither 0. Among equally cheap ways into a cell it takes the one from the left.
    """
    cost = np.ascontiguousarray(cost, np.float64)
    rows, columns = cost.shape
    if not rows or not columns:
        raise IndexError(f"a matrix of {rows} x {columns} has no path")
    path = np.empty((rows + columns, 2), np.int64)
    length = _cheapest_path(cost.ctypes.data, rows, columns, path.ctypes.data)
    return path[:length][::-1]
