"""AttentionMetadata: maps a step's flattened tokens to sequences, and to their keys and values in the cache.

The decoder runner and the encoder runner build it once a step; every attention layer of that step reads it. It holds
lists on the host, from which a backend derives other forms once, in `plan`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from torch import Tensor

from transept.core.attention.capture import CrossAttentionCapture
from transept.errors import PluginError


class AttentionType(enum.Enum):
    """The source of the keys.

    ENCODER: the same encoder tokens; not causal, without a cache.
    DECODER: the sequence's tokens so far, written to the cache and read from it; causal.
    ENCODER_DECODER: the encoder tokens of the request, which the engine wrote to the cache after `encode`; no mask
        within a sequence.
    """

    ENCODER = "encoder"
    DECODER = "decoder"
    ENCODER_DECODER = "encoder_decoder"


@dataclass(frozen=True)
class DecodeTables:
    """Each row's lengths and block tables in a recorded step, in static device tensors that every step overwrites.

    lengths, cross_lengths: int32 [rows], number of keys of self- and cross-attention. tables, cross_tables: int32
    [rows, blocks]; a row reads only the first blocks, as many as its length needs.
    """

    lengths: Tensor
    tables: Tensor
    cross_lengths: Tensor
    cross_tables: Tensor


@dataclass(frozen=True)
class EncodeTables:
    """Maps rows to sequences in a recorded encoder pass, in static device tensors that every pass overwrites.

    All are int32. starts: [sequences + 1], each sequence's first row, and the end of the last one. lengths:
    [sequences].
    tiles: [tiles, 2], the sequence and first query, within it, of a tile of QUERIES queries. A tile whose first query
    is beyond the sequence's end computes nothing.
    """

    starts: Tensor
    lengths: Tensor
    tiles: Tensor


class NoList(list[Any]):
    """Stands for a list in a recorded step's metadata; reading it raises, since a graph would freeze its values."""

    def _refuse(self, *arguments: Any) -> Any:
        raise PluginError("a step that is recorded as a CUDA graph serves any requests: its attn_metadata has no lists")

    __iter__ = __getitem__ = __len__ = __bool__ = __contains__ = __eq__ = _refuse
    __hash__ = None


@dataclass
class AttentionMetadata:
    """The flattened tokens of one step. For a recorded step, the lists cannot be read, and `num_rows` has the size.

    Models pass it to attention layers, and read nothing of it but `encoder_lens`.

    Decoder side, sequence i owning query rows ``query_start_loc[i] : query_start_loc[i + 1]``:
        seq_lens[i]: number of its tokens, including this step's, but without those whose blocks a window has freed. The
            queries are the last ones.
        slot_mapping: [num_tokens] int64, the cache slot for each token's key and value.
        block_tables[i]: its blocks of the self-attention cache.
        window: largest window of all layers' self-attention; blocks outside it are freed. None: all tokens are kept.

    A pass of the encoder:
        encoder_start_loc: input i owns encoder rows ``encoder_start_loc[i] : encoder_start_loc[i + 1]``.

    Cross-attention, one entry a request (a request's sequences are adjacent and share one table):
        cross_query_start_loc: request i owns query rows ``cross_query_start_loc[i] : cross_query_start_loc[i + 1]``.
        cross_seq_lens[i]: its encoder length. cross_block_tables[i]: its blocks of the cross-attention cache.
        capture: receives the attention weights that requests ask for; None: no request does.
        num_rows: in a recorded step, number of query rows, or of encoder tokens in an encoder pass.
    """

    block_size: int
    query_start_loc: list[int] = field(default_factory=lambda: [0])
    seq_lens: list[int] = field(default_factory=list)
    slot_mapping: Tensor | None = None
    block_tables: list[list[int]] = field(default_factory=list)
    encoder_start_loc: list[int] = field(default_factory=lambda: [0])
    cross_query_start_loc: list[int] = field(default_factory=lambda: [0])
    cross_seq_lens: list[int] = field(default_factory=list)
    cross_block_tables: list[list[int]] = field(default_factory=list)
    capture: CrossAttentionCapture | None = None
    window: int | None = None
    num_rows: int | None = None
    plan: Any = None  # set by AttentionBackend.plan; private to that backend

    @property
    def encoder_lens(self) -> list[int]:
        """Number of tokens of each input, for an encoder that takes one input at a time.

        Such an encoder calls ``encoder_input_ids.split(attn_metadata.encoder_lens)``.
        """
        return [end - start for start, end in pairwise(self.encoder_start_loc)]

    def num_queries(self, attn_type: AttentionType) -> int:
        """Return the number of query rows of attention of this type."""
        if self.num_rows is not None:
            return self.num_rows
        if attn_type is AttentionType.ENCODER:
            return self.encoder_start_loc[-1]
        starts = self.query_start_loc if attn_type is AttentionType.DECODER else self.cross_query_start_loc
        return starts[-1]

    @classmethod
    def recorded(cls, block_size: int, num_rows: int, window: int | None = None) -> AttentionMetadata:
        """Make the metadata of a recorded step. Reading one of its lists raises PluginError."""
        return cls(
            block_size,
            query_start_loc=NoList(),
            seq_lens=NoList(),
            block_tables=NoList(),
            encoder_start_loc=NoList(),
            cross_query_start_loc=NoList(),
            cross_seq_lens=NoList(),
            cross_block_tables=NoList(),
            window=window,
            num_rows=num_rows,
        )

    @classmethod
    def for_encoder(cls, encoder_seq_lens: list[int]) -> AttentionMetadata:
        """Make the metadata of an encoder pass over sequences of these lengths."""
        return cls(block_size=1, encoder_start_loc=[0, *accumulate(encoder_seq_lens)])


def slots_of(table: list[int], num_tokens: int, block_size: int) -> np.ndarray:
    """Return the cache slots of a block table's first tokens, int64 [num_tokens]."""
    blocks = np.asarray(table, np.int64)
    return (blocks[:, None] * block_size + np.arange(block_size)).ravel()[:num_tokens]
