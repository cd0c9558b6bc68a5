"""AttentionMetadata: how one step's flattened tokens fall into sequences, and where their keys and values lie.

Built once a step by the model runner from block tables; read by every attention layer of that step. It holds plain
host lists; what a backend needs in another shape it derives once, in `plan`.
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
    """Where the keys come from."""

    ENCODER = "encoder"  # the same encoder tokens; not causal, no cache
    DECODER = "decoder"  # the self-attention cache; causal
    ENCODER_DECODER = "encoder_decoder"  # the cross-attention cache; no mask within a sequence


@dataclass(frozen=True)
class DecodeTables:
    """Where the keys of each row of a recorded step lie, in device tensors that are overwritten from step to step.

    lengths, cross_lengths: int32 [rows], of the keys of self- and cross-attention. tables, cross_tables: int32 [rows,
    blocks], in which a row uses as many of the first as its length takes.
    """

    lengths: Tensor
    tables: Tensor
    cross_lengths: Tensor
    cross_tables: Tensor


@dataclass(frozen=True)
class EncodeTables:
    """Whose rows are whose in an encoder pass, in device tensors that are overwritten from pass to pass. All int32.

    starts: [sequences + 1], each sequence's first row, and the end of the last one. lengths: [sequences].
    tiles: [tiles, 2], a sequence and the first, within it, of QUERIES queries that are computed together; where that is
    beyond the sequence's end, none are.
    """

    starts: Tensor
    lengths: Tensor
    tiles: Tensor


class NoList(list[Any]):
    """In place of a list in the metadata of a step that is recorded, whose readers would record what it holds then."""

    def _refuse(self, *arguments: Any) -> Any:
        raise PluginError("a step that is recorded as a CUDA graph serves any requests: its attn_metadata has no lists")

    __iter__ = __getitem__ = __len__ = __bool__ = __contains__ = __eq__ = _refuse
    __hash__ = None


@dataclass
class AttentionMetadata:
    """One step, described in tokens. In one that is recorded there are no lists, and only `num_rows` says how many.

    Decoder side, sequence i owning query rows ``query_start_loc[i] : query_start_loc[i + 1]``:
        seq_lens[i]: its tokens in all, this step's included, but for those whose blocks have been given back; the
            queries are the last of them.
        slot_mapping: [num_tokens] int64, the cache slot that each token's key and value go to.
        block_tables[i]: its blocks of the self-attention cache.
        window: of every layer's self-attention at most, behind which blocks are given back; None: all tokens are kept.

    A pass of the encoder:
        encoder_start_loc: input i owns encoder rows ``encoder_start_loc[i] : encoder_start_loc[i + 1]``.

    Cross-attention, one entry a request (a request's sequences are adjacent and share one table):
        cross_query_start_loc: request i owns query rows ``cross_query_start_loc[i] : cross_query_start_loc[i + 1]``.
        cross_seq_lens[i]: its encoder length. cross_block_tables[i]: its blocks of the cross-attention cache.
        capture: where the attention layer leaves weights that requests ask for; None: nowhere.
        num_rows: in a step that is recorded, rows of queries, or tokens of a pass of the encoder.
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
        """Tokens of each input, for an encoder that takes one at a time."""
        return [end - start for start, end in pairwise(self.encoder_start_loc)]

    def num_queries(self, attn_type: AttentionType) -> int:
        """Rows of queries that attention of this type has."""
        if self.num_rows is not None:
            return self.num_rows
        if attn_type is AttentionType.ENCODER:
            return self.encoder_start_loc[-1]
        starts = self.query_start_loc if attn_type is AttentionType.DECODER else self.cross_query_start_loc
        return starts[-1]

    @classmethod
    def recorded(cls, block_size: int, num_rows: int, window: int | None = None) -> AttentionMetadata:
        """Metadata of a step that is recorded. Whoever reads a list in it gets a PluginError."""
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
        """Metadata of an encoder pass alone, over sequences of these lengths."""
        return cls(block_size=1, encoder_start_loc=[0, *accumulate(encoder_seq_lens)])


def slots_of(table: list[int], num_tokens: int, block_size: int) -> np.ndarray:
    """Where the first tokens of a block table lie in the cache, int64 [num_tokens]."""
    blocks = np.asarray(table, np.int64)
    return (blocks[:, None] * block_size + np.arange(block_size)).ravel()[:num_tokens]
