"""Low-rank updates of products on a CPU: ``out += x @ a.T @ b``, by the adapter of each row.

The fused kernel of decoder layers adds them too. Each row is batch-invariant, bit for bit.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
from torch import Tensor

from transept.core.kernels.cpu.library import Int, KernelFunction, Pointer, runs_on

_add_low_rank = KernelFunction("transept_add_low_rank", Pointer, Int, Pointer, Pointer, Int, Int, Pointer)
ROWS_OF_TILE = 4  # of gemm/low_rank.h
TILE = np.dtype([("slot", np.int32), ("count", np.int32), ("rows", np.int32, ROWS_OF_TILE)])


class _PieceStruct(ctypes.Structure):
    """LowRankPiece of gemm/low_rank.h."""

    _fields_ = (("a", Pointer), ("b", Pointer), ("rank", Int), ("first", Int), ("outputs", Int))


class _SlotStruct(ctypes.Structure):
    """LowRankSlot of gemm/low_rank.h."""

    _fields_ = (("pieces", Pointer), ("count", Int))


class RowsStruct(ctypes.Structure):
    """AdapterRows of gemm/low_rank.h."""

    _fields_ = (("tiles", Pointer), ("count", Int))


class RowTiles:
    """The rows of a pass that have an adapter, in tiles of one adapter each. struct: as kernels read them.

    slots: each row's adapter by its slot; below 0: none.
    """

    def __init__(self, slots: np.ndarray) -> None:
        self.num_rows, self.num_slots = len(slots), int(slots.max(initial=-1)) + 1
        order = np.argsort(slots, kind="stable").astype(np.int32)
        runs = np.split(order, np.flatnonzero(np.diff(slots[order])) + 1)
        tiles = [
            np.array([(slots[run[0]], len(rows), np.resize(rows, ROWS_OF_TILE))], TILE)
            for run in runs
            if len(run) and slots[run[0]] >= 0
            for rows in np.split(run, range(ROWS_OF_TILE, len(run), ROWS_OF_TILE))
        ]
        self._tiles = np.concatenate(tiles) if tiles else np.zeros(0, TILE)
        self.struct = RowsStruct(self._tiles.ctypes.data, len(self._tiles))
        self.address = ctypes.addressof(self.struct)


class LowRankTable:
    """A linear layer's updates by slot. address: of the table, which does not change when a slot is filled."""

    def __init__(self, inputs: int, outputs: int, num_slots: int) -> None:
        self.inputs, self.outputs, self.num_slots = inputs, outputs, num_slots
        self._slots = (_SlotStruct * num_slots)()
        self._kept: list[list[tuple[Tensor, Tensor]]] = [[] for _ in range(num_slots)]  # the kernel reads their memory
        self._structs: list[ctypes.Array[_PieceStruct] | None] = [None] * num_slots
        self.address = ctypes.addressof(self._slots)

    def put(self, slot: int, pieces: Sequence[tuple[int, Tensor, Tensor]]) -> None:
        """Fill a slot with updates of outputs from `first` on: (first, a [rank, in], b [outputs, rank]).

        No kernel may read the slot meanwhile. Raises IndexError for factors that do not fit the layer.
        """
        self._slots[slot].count = 0
        kept, structs = [], (_PieceStruct * len(pieces))()
        for struct, (first, given_a, given_b) in zip(structs, pieces, strict=True):
            a, b = given_a.detach().float().contiguous(), given_b.detach().float().t().contiguous()
            rank, outputs = b.shape
            if a.shape != (rank, self.inputs) or not 0 <= first <= first + outputs <= self.outputs:
                shapes = [*a.shape], [*given_b.shape]
                raise IndexError(
                    f"factors {shapes} do not fit outputs from {first} on of {[self.outputs, self.inputs]}"
                )
            kept.append((a, b))
            struct.a, struct.b, struct.rank = a.data_ptr(), b.data_ptr(), rank
            struct.first, struct.outputs = first, outputs
        self._kept[slot], self._structs[slot] = kept, structs
        self._slots[slot].pieces, self._slots[slot].count = ctypes.addressof(structs), len(pieces)


def add(x: Tensor, table: LowRankTable, tiles: RowTiles, out: Tensor, first: int = 0) -> None:
    """Add the updates of some of a layer's outputs, from `first` on, to out, in place.

    x: float32 [rows, in] on the CPU. out: float32 [rows, outputs], contiguous. Raises IndexError for other shapes.
    """
    outputs = out.shape[-1]
    fits = x.shape == (tiles.num_rows, table.inputs) and out.shape == (tiles.num_rows, outputs)
    if not fits or not out.is_contiguous() or first + outputs > table.outputs or tiles.num_slots > table.num_slots:
        raise IndexError(f"{tiles.num_rows} rows have no updates from {[*x.shape]} to {[*out.shape]}")
    if not (runs_on(x) and runs_on(out)):
        raise TypeError(f"updates are of float32 on the CPU, not of {x.dtype} and {out.dtype}")
    x = x.contiguous()
    _add_low_rank(x.data_ptr(), table.inputs, table.address, tiles.address, first, outputs, out.data_ptr())
