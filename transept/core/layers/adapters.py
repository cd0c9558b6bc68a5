"""Adapters in linear layers: a layer's low-rank updates by slot, and the rows of a pass that use them.

The runners call a model in `using`, and `Linear` adds the updates to its products. Slots are filled by
`transept.core.execution.model_adapters`. In a pass without adapters, each layer only reads a context variable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from transept.core.kernels.dispatch import LOW_RANK, LowRankTable, RowTiles
from transept.core.kernels.transfer import upload
from transept.errors import PluginError

NONE = -1  # the slot of a row without an adapter


class LowRankPiece(NamedTuple):
    """An update of this rank's outputs of a layer, from `first` on. a: [rank, in]. b: [outputs, rank], scaled."""

    first: int
    a: Tensor
    b: Tensor


class AdapterRows:
    """The rows of a pass with their adapters. slots: each row's slot, or NONE; a number: the slot of all rows."""

    def __init__(self, slots: Sequence[int] | int) -> None:
        self.of_all = slots if isinstance(slots, int) else None
        self.slots = np.array(() if isinstance(slots, int) else slots, np.int32)
        self._tiles: dict[int, RowTiles] = {}  # by the number of rows
        self._indices: dict[torch.device, Mapping[int, Tensor]] = {}

    def tiles(self, num_rows: int) -> RowTiles:
        """Return the rows for CPU kernels. Raises PluginError for another number of rows than the pass has."""
        self._check(num_rows)
        if num_rows not in self._tiles:
            slots = self.slots if self.of_all is None else np.full(num_rows, self.of_all, np.int32)
            self._tiles[num_rows] = RowTiles(slots)
        return self._tiles[num_rows]

    def indices(self, x: Tensor) -> Mapping[int, Any]:
        """Return the rows of each slot, on x's device: an index of x. Raises like `tiles`."""
        self._check(len(x))
        if self.of_all is not None:
            return {self.of_all: slice(None)}
        if x.device not in self._indices:
            used = {int(slot) for slot in self.slots} - {NONE}
            rows = {slot: np.flatnonzero(self.slots == slot).tolist() for slot in sorted(used)}
            self._indices[x.device] = {slot: upload(each, x.device) for slot, each in rows.items()}
        return self._indices[x.device]

    @cached_property
    def with_adapters(self) -> list[int]:
        """The rows that have an adapter, of a pass whose rows differ."""
        rows: list[int] = np.flatnonzero(self.slots != NONE).tolist()
        return rows

    def selected(self, rows: Sequence[int]) -> AdapterRows:
        """Return the adapters of some of the rows."""
        return self if self.of_all is not None else AdapterRows(self.slots[[*rows]].tolist())

    def _check(self, num_rows: int) -> None:
        if self.of_all is None and num_rows != len(self.slots):
            raise PluginError(
                f"a linear layer is called with {num_rows} rows in a pass of {len(self.slots)}, so their adapters are "
                "unknown. Have the model call its linear layers with all rows, or merge the adapter by merge_adapter"
            )


_ROWS: ContextVar[AdapterRows | None] = ContextVar("adapters of the pass that runs", default=None)
rows_in_use = _ROWS.get


@contextmanager
def using(rows: AdapterRows | None) -> Iterator[None]:
    """Call a model in this context. rows: of the pass; None if no row has an adapter."""
    token = _ROWS.set(rows)
    try:
        yield
    finally:
        _ROWS.reset(token)


class LayerAdapters:
    """A linear layer's updates by slot. table: as CPU kernels read them; None on other devices and in other dtypes."""

    def __init__(self, inputs: int, outputs: int, num_slots: int, device: torch.device, dtype: torch.dtype) -> None:
        on_cpu = device.type == "cpu" and dtype is torch.float32
        self.table = LowRankTable(inputs, outputs, num_slots) if on_cpu else None
        self._device, self._dtype = device, dtype
        self._pieces: list[list[LowRankPiece]] = [[] for _ in range(num_slots)]

    def put(self, slot: int, pieces: Sequence[LowRankPiece]) -> None:
        """Fill a slot; with no pieces, empty it."""
        if self.table is not None:
            self.table.put(slot, pieces)
        else:
            device, dtype = self._device, self._dtype
            self._pieces[slot] = [
                LowRankPiece(first, a.to(device, dtype), b.to(device, dtype)) for first, a, b in pieces
            ]

    def add(self, rows: AdapterRows, x: Tensor, out: Tensor, first: int = 0) -> Tensor:
        """Add the updates of outputs from `first` on to out, in place, and return it. x: [rows, in]."""
        if self.table is not None:
            LOW_RANK.only(x, self.table, rows.tiles(len(x)), out, first)
            return out
        for slot, index in rows.indices(x).items():
            for piece in self._pieces[slot]:
                begin, stop = piece.first - first, piece.first - first + len(piece.b)
                if begin >= 0 and stop <= out.shape[1]:
                    out[index, begin:stop] += (x[index].to(piece.a.dtype) @ piece.a.T @ piece.b.T).to(out.dtype)
        return out
