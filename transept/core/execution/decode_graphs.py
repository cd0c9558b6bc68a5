"""Decode steps as CUDA graphs, one for each of a few shapes.

A decode step is hundreds of short kernels, which a GPU runs faster than Python can launch them. Here the step's token
ids, positions, slots and tables are written into one host buffer and copied to the device at once. Then the graph for
that shape is replayed. Steps are padded to a few shapes: padding rows write into the cache's spare block, and their
results are not read. Used by `transept.core.execution.decoder_runner`.
"""

from __future__ import annotations

import logging
from itertools import pairwise
from math import prod
from operator import ge
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from transept.core.attention.metadata import AttentionMetadata, DecodeTables
from transept.core.execution.drawn import Drawn
from transept.core.execution.kv_cache import KVCache
from transept.core.execution.recorder import Recorder
from transept.core.execution.rows import DecodeRows, put_pending
from transept.core.kernels.transfer import upload
from transept.core.model import ForConditionalGeneration
from transept.core.scheduling.step import BlockTable

logger = logging.getLogger(__name__)

MOST_RECORDINGS = 64  # each takes GPU memory: see `memory_profile`
MOST_FILLING = 2  # maximum ratio of a larger recording's rows to the step's

Shape: TypeAlias = tuple[int, int, int]  # rows, blocks of the longest sequence, blocks of the longest encoder input


class DecodeGraphs:
    """CUDA graphs of decode steps by shape, at most MOST_RECORDINGS. Beyond that, a larger graph serves a new shape.

    If a shape cannot be recorded, other shapes are not affected. The model's attention backend must be `replayable`.
    """

    def __init__(
        self, model: ForConditionalGeneration, cache: KVCache, block_size: int, recorder: Recorder | None = None
    ) -> None:
        self.model, self.cache, self.block_size = model, cache, block_size
        self.failed_shapes: set[Shape] = set()  # not tried again
        self._recordings: dict[Shape, _Recording] = {}
        self.logits = _SharedLogits()
        self.recorder = recorder or Recorder(cache.layers[0].device)

    def __call__(self, rows: DecodeRows, last: Drawn | None) -> Tensor | None:
        """Return the logits, [rows, vocabulary], which the next call may overwrite; None if no recording serves.

        rows: each is a separate span. last: the draws of the previous step, if tokens are pending. The caller launches
        a step that no recording serves. A shape that cannot be recorded is logged once.
        """
        blocks, cross_blocks = (
            power_of_two(max(map(len, each))) for each in (rows.block_tables, rows.cross_block_tables)
        )
        recording = self._serving((num_rows_recorded(len(rows.token_ids)), blocks, cross_blocks))
        return None if recording is None else recording(rows, last)

    def record(self, shape: Shape) -> None:
        """Record a shape. Logs a failure, and does not try that shape again."""
        try:
            self._recordings[shape] = _Recording(self, shape)
        except Exception as error:  # of a plugin's decode, or of CUDA's capture
            logger.warning(
                "%s decodes %d rows of %d blocks without CUDA graphs, kernels launched one by one: %s: %s",
                *(type(self.model).__name__, *shape[:2], type(error).__name__, error),
            )
            self.failed_shapes.add(shape)

    def _serving(self, shape: Shape) -> _Recording | None:
        """Return the recording of a shape, made now if there is room, or else the smallest one that is large enough."""
        if shape in self.failed_shapes:
            return None
        if shape not in self._recordings and len(self._recordings) < MOST_RECORDINGS:
            self.record(shape)
        if shape in self._recordings:
            return self._recordings[shape]
        num_rows, *blocks = shape
        larger = [
            each
            for each in self._recordings
            if num_rows <= each[0] <= MOST_FILLING * num_rows and all(map(ge, each[1:], blocks))
        ]
        return self._recordings[min(larger)] if larger else None


class _SharedLogits:
    """One buffer for the logits of all recorded steps; separate ones would soon take gigabytes."""

    rows: Tensor | None = None

    def keep(self, logits: Tensor) -> Tensor:
        """Copy logits [rows, vocabulary] into the buffer and return the copy.

        The buffer grows only in the warm-up run of a step, before it is recorded.
        """
        if self.rows is None or len(self.rows) < len(logits):
            self.rows = torch.empty_like(logits)
        return self.rows[: len(logits)].copy_(logits)


class _Recording:
    """A step of one shape."""

    def __init__(self, graphs: DecodeGraphs, shape: Shape) -> None:
        model, cache, logits, num_rows = graphs.model, graphs.cache, graphs.logits, shape[0]
        self.block_size, self.spare_block = graphs.block_size, cache.spare_block
        sizes = [num_rows] * 5 + [num_rows * num_blocks for num_blocks in shape[1:]]
        self.host = np.zeros(sum(sizes), np.int32)
        self.numbers = torch.zeros(sum(sizes), dtype=torch.int32, device=cache.layers[0].device)
        *self.columns, tables, cross_tables = np.split(self.host, np.cumsum(sizes)[:-1])
        self.tables, self.cross_tables = tables.reshape(num_rows, -1), cross_tables.reshape(num_rows, -1)
        self.written: list[BlockTable | None] = [None] * num_rows  # the table that is in each row of cross_tables
        token_ids, positions, slots, lengths, cross_lengths, *both = self.numbers.split(sizes)
        blocks, cross_blocks = (part.view(num_rows, -1) for part in both)
        metadata = AttentionMetadata.recorded(self.block_size, num_rows, model.shape(model.config).window)
        model.context.attention_backend.plan_decode(
            metadata, DecodeTables(lengths, blocks, cross_lengths, cross_blocks)
        )

        def step() -> Tensor:
            metadata.slot_mapping = slots.long()
            hidden = model.decode(token_ids.long(), positions.long(), cache.layers, metadata)
            return logits.keep(model.compute_logits(hidden))

        self._write(DecodeRows())
        self.step = step  # holds the plan's tensors, which a CUDA graph reads but does not own
        self.replay = graphs.recorder(step)

    def __call__(self, rows: DecodeRows, last: Drawn | None) -> Tensor:
        """See DecodeGraphs."""
        self._write(rows)
        put_pending(self.numbers, rows.pending, last)  # token ids come first in the buffer
        return self.replay()[: len(rows.token_ids)]

    def _write(self, rows: DecodeRows) -> None:
        """Write the rows into the buffer, pad it, and copy it to the device."""
        used = len(rows.token_ids)
        token_ids, positions, slots, lengths, cross_lengths = self.columns
        token_ids[used:], positions[used:], lengths[used:], cross_lengths[used:] = 0, 0, 1, 1
        slots[used:] = self.spare_block * self.block_size
        token_ids[:used], positions[:used] = rows.token_ids, rows.positions
        slots[:used], lengths[:used] = rows.slots, rows.lengths
        for index, table in enumerate(rows.block_tables):
            self.tables[index, : len(table)] = table
        requests = zip(pairwise(rows.request_starts), rows.cross_lengths, rows.cross_block_tables, strict=True)
        for (start, stop), length, table in requests:
            cross_lengths[start:stop] = length
            for index in range(start, stop):
                if self.written[index] is not table:
                    self.cross_tables[index, : len(table)] = self.written[index] = table
        self.tables[used:] = self.cross_tables[used:] = self.spare_block
        self.written[used:] = [None] * (len(self.written) - used)
        self.numbers.copy_(upload(self.host, self.numbers.device, torch.int32))


def num_rows_recorded(count: int) -> int:
    """Return the number of rows to which a step is padded: 1, 2, 4, 8, 16, 24, 32, 48, 64, 96, and so on."""
    power = power_of_two(count)
    return power * 3 // 4 if power > 16 and count <= power * 3 // 4 else power


def most_recordings(largest: Shape) -> int:
    """Return the maximum number of recordings of shapes up to the largest."""
    num_rows, *blocks = largest
    numbers = {num_rows_recorded(count + 1) for count in range(num_rows)}
    return min(MOST_RECORDINGS, len(numbers) * prod(each.bit_length() for each in blocks))


def power_of_two(count: int) -> int:
    """Return the smallest power of two that is at least `count`."""
    return 1 << (count - 1).bit_length()
