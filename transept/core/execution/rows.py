"""DecodeRows: the decoder tokens of a step, with their sequences and their cache slots.

Eager steps, CUDA graphs, and the CPU's kernel of whole layers use the same description. Made by
`transept.core.execution.decoder_runner` from a step's requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from transept.core.attention.metadata import AttentionMetadata, slots_of
from transept.core.execution.drawn import Drawn
from transept.core.kernels.dispatch import MOST_QUERIES
from transept.core.kernels.transfer import upload
from transept.core.scheduling.step import PENDING, BlockTable, SequenceGroupMetadata, num_blocks_behind


@dataclass(frozen=True)
class DecodeRows:
    """One row for each token, sequence after sequence, request after request.

    token_ids, positions, slots: [rows]. slots: the cache slot for each row's key and value.
    starts, lengths, block_tables: spans, which are rows that attend to the same blocks. Span i has the rows
        ``starts[i] : starts[i + 1]``. They are the last of the ``lengths[i]`` tokens in its block table. A decoding
        sequence has a span of one row for its last token, and another for each draft token. A prompt is one span, or
        has a span for each token.
    request_starts, cross_lengths, cross_block_tables: the same for requests, or parts of them, and their encoder
        tokens. Each row of a request attends to all of these. The block tables of self-attention change from step to
        step; these do not.
    pending: row -> sequence id, for tokens that the previous step drew and that are not on the host yet.
    sampled: the rows whose logits are needed: of each sequence's last token, and of its draft tokens.
    adapters: slot of each row's adapter; None for a row without an adapter.
    """

    token_ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=lambda: [0])
    lengths: list[int] = field(default_factory=list)
    block_tables: list[BlockTable] = field(default_factory=list)
    request_starts: list[int] = field(default_factory=lambda: [0])
    cross_lengths: list[int] = field(default_factory=list)
    cross_block_tables: list[BlockTable] = field(default_factory=list)
    pending: dict[int, int] = field(default_factory=dict)
    sampled: list[int] = field(default_factory=list)
    adapters: list[int | None] = field(default_factory=list)

    @classmethod
    def of(
        cls, step: Sequence[SequenceGroupMetadata], block_size: int, window: int | None, most_spans: int = 0
    ) -> DecodeRows:
        """Return the rows of some requests.

        window: see ModelShape. most_spans: if a new request has at most this many tokens, each is a separate span.
        """
        rows = cls()
        for group in step:
            spans = group.is_prefill and group.num_rows <= most_spans
            for seq_id, data in group.seq_data.items():
                table, length = group.block_tables[seq_id], data.num_tokens
                if group.is_prefill:
                    rows._add_prompt(data.token_ids + data.draft_token_ids, table, block_size, spans)
                else:
                    # The table begins after the blocks that the window has freed.
                    freed = num_blocks_behind(length, window, block_size) * block_size
                    if data.last_token_id == PENDING:
                        rows.pending[len(rows.token_ids)] = seq_id
                    rows._add_token(data.last_token_id, length - 1, freed, table, block_size)
                    for position, token in enumerate(data.draft_token_ids, length):
                        rows._add_token(token, position, freed, table, block_size)
                rows.sampled.extend(range(len(rows.token_ids) - 1 - len(data.draft_token_ids), len(rows.token_ids)))
            rows._add_request(group, in_parts=group.num_rows > len(group.seq_data) and not group.is_prefill)
            rows.adapters.extend([group.adapter] * (len(rows.token_ids) - len(rows.adapters)))
        return rows

    def add_uncached(
        self,
        group: SequenceGroupMetadata,
        table: BlockTable,
        token_ids: list[int],
        num_cached: int,
        block_size: int,
        most_spans: int,
    ) -> None:
        """Add a request's sequence, whose first `num_cached` tokens are in the cache. Only its last row is sampled."""
        if num_cached:
            for position, token in enumerate(token_ids[num_cached:], num_cached):
                self._add_token(token, position, 0, table, block_size)
        else:
            self._add_prompt(token_ids, table, block_size, len(token_ids) <= most_spans)
        self.sampled.append(len(self.token_ids) - 1)
        self._add_request(group, in_parts=num_cached > 0)
        self.adapters.extend([None] * (len(token_ids) - num_cached))

    def _add_request(self, group: SequenceGroupMetadata, in_parts: bool) -> None:
        """Add a request whose rows have been added. in_parts: with drafts, because kernels prefer few rows."""
        first, last = self.request_starts[-1], len(self.token_ids)
        size = MOST_QUERIES if in_parts else last - first
        for start in range(first, last, size):
            self.request_starts.append(min(start + size, last))
            self.cross_lengths.append(group.num_encoder_tokens)
            self.cross_block_tables.append(group.cross_block_table)

    def _add_token(self, token: int, position: int, freed: int, table: BlockTable, block_size: int) -> None:
        """Add a token of a decoding sequence. freed: tokens before the first one in the table."""
        block, place = divmod(position - freed, block_size)
        self.token_ids.append(token)
        self.positions.append(position)
        self.slots.append(table[block] * block_size + place)
        self.starts.append(len(self.token_ids))
        self.lengths.append(position - freed + 1)
        self.block_tables.append(table)

    def _add_prompt(self, token_ids: list[int], table: BlockTable, block_size: int, spans: bool) -> None:
        first, count = len(self.token_ids), len(token_ids)
        self.token_ids.extend(token_ids)
        self.positions.extend(range(count))
        self.slots.extend(slots_of(table, count, block_size).tolist())
        lengths = range(1, count + 1) if spans else [count]
        self.starts.extend(first + length for length in lengths)
        self.lengths.extend(lengths)
        self.block_tables.extend([table] * len(lengths))

    def metadata(self, block_size: int, window: int | None, slots: Tensor) -> AttentionMetadata:
        """Return the attention metadata of an eager step. slots: `self.slots`, copied to the device."""
        return AttentionMetadata(
            block_size=block_size,
            query_start_loc=self.starts,
            seq_lens=self.lengths,
            slot_mapping=slots,
            block_tables=self.block_tables,
            cross_query_start_loc=self.request_starts,
            cross_seq_lens=self.cross_lengths,
            cross_block_tables=self.cross_block_tables,
            window=window,
        )


def put_pending(token_ids: Tensor, pending: dict[int, int], last: Drawn | None) -> None:
    """Write tokens that are not on the host yet into token_ids. pending: index -> sequence id, drawn by step `last`."""
    if pending:
        assert last is not None
        tokens = last.tokens_of([*pending.values()]).to(token_ids.dtype)
        token_ids.index_copy_(0, upload([*pending], token_ids.device), tokens)
