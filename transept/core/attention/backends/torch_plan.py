"""TorchPlan: data that the `torch` backend computes once a step for all layers: slots, masks and kernels' work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from transept.core.attention.biases import AttentionBias, RelativePositionBias, bias_block
from transept.core.attention.metadata import AttentionMetadata, AttentionType
from transept.core.kernels.dispatch import MOST_QUERIES, DecodeStep, DistanceBias, PagedWork


class LastCrossWork:
    """Caches the kernel's work for cross-attention, which changes only when a request joins or leaves."""

    def __init__(self) -> None:
        self._of: tuple[int, list[list[int]], list[int], list[int]] | None = None
        self._work: PagedWork | None = None

    def __call__(self, metadata: AttentionMetadata) -> PagedWork:
        """Return the work for a step's requests with few queries."""
        tables, lengths, starts = metadata.cross_block_tables, metadata.cross_seq_lens, metadata.cross_query_start_loc
        if self._work is None or self._of != (metadata.block_size, tables, lengths, starts):
            # An interruption at any line leaves the cache valid.
            work = _work(metadata.block_size, tables, lengths, starts, MOST_QUERIES)
            self._of = None
            self._work = work
            self._of = metadata.block_size, [[*table] for table in tables], [*lengths], [*starts]
        return self._work

    def __reduce__(self) -> Any:
        return LastCrossWork, ()  # a copy starts empty, since the work holds addresses of this process


@dataclass
class TorchPlan:
    """Data that the layers of a step share, each computed when the first layer needs it.

    _masks: attention type and reach -> the previous layer's bias and its masks, one for each sequence; in most models
        the next layer has the same bias. _last_rows, _distances (by reach) and decode_step cache in the same way for
        the kernels of the decoder and the encoder.
    """

    metadata: AttentionMetadata
    last_cross_work: LastCrossWork
    _last_rows: dict[tuple[int, int] | None, tuple[RelativePositionBias | None, DistanceBias]] = field(
        default_factory=dict
    )
    _distances: dict[tuple[int, int] | None, tuple[RelativePositionBias | None, Tensor | None]] = field(
        default_factory=dict
    )
    decode_step: tuple[AttentionBias | None, DecodeStep] | None = None
    _masks: dict[tuple[AttentionType, tuple[int, int] | None], tuple[AttentionBias | None, list[Tensor | None]]] = (
        field(default_factory=dict)
    )

    @cached_property
    def self_runs(self) -> list[list[slice]]:
        """Each decoder sequence's slots in order, as runs; empty for a whole prefill, whose keys the call provides."""
        metadata = self.metadata
        return [
            [] if stop - start == length else slot_runs(table, length, metadata.block_size)
            for (start, stop), table, length in zip(
                pairwise(metadata.query_start_loc), metadata.block_tables, metadata.seq_lens, strict=True
            )
        ]

    @cached_property
    def cross_runs(self) -> list[list[slice]]:
        """Each request's slots of its encoder tokens in order, as runs."""
        metadata = self.metadata
        return [
            slot_runs(table, length, metadata.block_size)
            for table, length in zip(metadata.cross_block_tables, metadata.cross_seq_lens, strict=True)
        ]

    @cached_property
    def long_sequences(self) -> Sequence[int]:
        """Indices of decoder sequences with several queries, which the kernel does not serve."""
        return [i for i, (start, stop) in enumerate(pairwise(self.metadata.query_start_loc)) if stop - start > 1]

    @cached_property
    def only_decodes(self) -> bool:
        """True if every sequence has one query, cross-attention has few, and no weights are captured."""
        metadata = self.metadata
        requests = pairwise(metadata.cross_query_start_loc)
        return (
            not self.long_sequences
            and metadata.capture is None
            and all(stop - start <= MOST_QUERIES for start, stop in requests)
        )

    @cached_property
    def self_work(self) -> PagedWork:
        """The kernel's work for decoder sequences with a single query."""
        metadata = self.metadata
        return _work(metadata.block_size, metadata.block_tables, metadata.seq_lens, metadata.query_start_loc, 1)

    @cached_property
    def cross_work(self) -> PagedWork:
        """The kernel's work for requests with few queries."""
        return self.last_cross_work(self.metadata)

    def masks(
        self,
        attn_type: AttentionType,
        bias: AttentionBias | None,
        reach: tuple[int, int] | None,
        query_counts: list[int],
        lengths: list[int],
        like: Tensor,
    ) -> list[Tensor | None]:
        """Return each sequence's mask, [1, heads or 1, queries, keys]; None if it needs none but a causal one.

        The queries are the last query_counts[i] of a sequence of lengths[i] tokens. like: a tensor of the masks' dtype.
        """
        kind = (attn_type, reach)
        if kind not in self._masks or self._masks[kind][0] is not bias:
            causal = attn_type is AttentionType.DECODER
            sizes = list(zip(query_counts, lengths, strict=True))
            goes_on = any(1 < queries < length for queries, length in sizes)  # several queries after cached keys
            masks: list[Tensor | None]
            if isinstance(bias, Tensor):
                masks = [_mask(bias, causal, reach, queries, length, like) for queries, length in sizes]
            elif bias is None and reach is None and not (causal and goes_on):
                masks = [None] * len(sizes)
            else:
                # These masks depend on distances only, so the end of the largest one contains all others.
                largest = _mask(bias, causal, reach, max(query_counts), max(lengths), like)
                rows, columns = largest.shape[2:]
                masks = [largest[:, :, rows - queries :, columns - length :] for queries, length in sizes]
            self._masks[kind] = (bias, masks)
        return self._masks[kind][1]

    def last_row(self, bias: RelativePositionBias | None, reach: tuple[int, int] | None, like: Tensor) -> DistanceBias:
        """Return the bias of the last query of the step's longest sequence, with -inf for keys outside the window.

        like: a tensor of the bias's dtype, with heads as its second dimension.
        """
        if reach not in self._last_rows or self._last_rows[reach][0] is not bias:
            row = _mask(bias, True, reach, 1, max(self.metadata.seq_lens), like)[0, :, 0]  # [heads or 1, keys]
            self._last_rows[reach] = (bias, DistanceBias(row.expand(like.shape[1], -1)))
        return self._last_rows[reach][1]

    def bias_by_distance(
        self, bias: RelativePositionBias | None, reach: tuple[int, int] | None, length: int, longest: int, like: Tensor
    ) -> Tensor | None:
        """Return a sequence's bias by query position minus key position, [heads or 1, 2 * length - 1], or None.

        longest: length of the step's longest sequence. like: a tensor of the bias's dtype.
        """
        if reach not in self._distances or self._distances[reach][0] is not bias:
            distances = torch.arange(1 - longest, longest)
            values = None if bias is None else bias.by_distance(-distances)
            if reach is not None:
                values = like.new_zeros(1, len(distances)) if values is None else values
                values = values.masked_fill((distances > reach[0]) | (distances < -reach[1]), float("-inf"))
            self._distances[reach] = (bias, values)
        values = self._distances[reach][1]
        return None if values is None else values[:, longest - length : longest + length - 1]


def _work(
    block_size: int, tables: list[list[int]], lengths: list[int], starts: list[int], most_queries: int
) -> PagedWork:
    few = [i for i, (start, stop) in enumerate(pairwise(starts)) if stop - start <= most_queries]
    return PagedWork(
        block_size, [tables[i] for i in few], [lengths[i] for i in few], [(starts[i], starts[i + 1]) for i in few]
    )


def runs_of(slots: Tensor) -> list[slice]:
    """Split slots, int64 [tokens] on the CPU, into maximal runs of consecutive slots."""
    edges = [0, *(torch.nonzero(slots.diff() != 1).flatten() + 1).tolist(), len(slots)]
    firsts = slots[edges[:-1]].tolist()
    return [slice(first, first + stop - start) for first, (start, stop) in zip(firsts, pairwise(edges), strict=True)]


def slot_runs(block_table: list[int], num_slots: int, block_size: int) -> list[slice]:
    """Return the slots of a sequence's first num_slots tokens, as maximal runs of consecutive cache slots.

    Example: a table [4, 5, 6, 9] of 16-slot blocks and 60 tokens give [64:112, 144:156].
    """
    runs: list[slice] = []
    left, index = num_slots, 0
    while left > 0:
        first = block_table[index]
        length = 1
        while length * block_size < left and block_table[index + length] == first + length:
            length += 1
        count = min(length * block_size, left)
        runs.append(slice(first * block_size, first * block_size + count))
        left -= count
        index += length
    return runs


def _mask(
    bias: AttentionBias | None,
    causal: bool,
    reach: tuple[int, int] | None,
    num_queries: int,
    num_keys: int,
    like: Tensor,
) -> Tensor:
    """Return the bias of a sequence's last queries, with -inf where causality or the window masks a key."""
    first = num_keys - num_queries
    if bias is None:
        mask = torch.zeros(1, num_queries, num_keys, dtype=like.dtype, device=like.device)
    else:
        mask = bias_block(bias, first, num_queries, num_keys)
    if causal and num_queries > 1:
        mask = mask.masked_fill(later_keys(num_queries, num_keys, first, like), float("-inf"))
    if reach is not None:
        places = torch.arange(num_keys, device=like.device)
        distance = places[None, :] - places[first:, None]  # [queries, keys]
        mask = mask.masked_fill((distance < -reach[0]) | (distance > reach[1]), float("-inf"))
    return mask.unsqueeze(0)


def later_keys(num_queries: int, num_keys: int, first: int, like: Tensor) -> Tensor:
    """Return True where a key comes after a query, [queries, keys]. first: position of the first query."""
    return torch.ones(num_queries, num_keys, dtype=torch.bool, device=like.device).triu(1 + first)
