"""The `triton` backend: paged attention by Transept's Triton kernels, which also read T5's relative bias.

For GPUs. In Triton's interpreter (TRITON_INTERPRET=1) it runs anywhere, slowly, for tests. One kernel serves sequences
with few queries and splits their keys over programs (split-K); another serves the others by tiles of queries.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from transept.core.attention.backends.base import AttentionBackend, AttentionCall
from transept.core.attention.biases import AttentionBias
from transept.core.attention.metadata import AttentionMetadata, AttentionType, DecodeTables, EncodeTables
from transept.core.kernels.dispatch import (
    GPU_ATTENTION,
    QUERIES,
    WRITE_CACHE,
    Work,
    in_interpreter,
)
from transept.core.kernels.transfer import upload

MOST_QUERIES_IN_PIECES = 4  # in a sequence; each query rereads the keys, so tiles are faster for more
LARGEST_HEAD = 256
TRITON_DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@dataclass
class TritonPlan:
    """The work of each type of attention in a step, made when the first layer needs it."""

    metadata: AttentionMetadata
    device: torch.device | None = None

    @cached_property
    def encoder(self) -> Work:
        """Encoder self-attention."""
        starts = self.metadata.encoder_start_loc
        return self._work(starts, [stop - start for start, stop in pairwise(starts)], None, most_queries=0)

    @cached_property
    def decoder(self) -> Work:
        """Decoder self-attention."""
        metadata = self.metadata
        return self._work(metadata.query_start_loc, metadata.seq_lens, metadata.block_tables, most_queries=1)

    @cached_property
    def cross(self) -> Work:
        """Cross-attention."""
        metadata = self.metadata
        starts, tables = metadata.cross_query_start_loc, metadata.cross_block_tables
        return self._work(starts, metadata.cross_seq_lens, tables, most_queries=MOST_QUERIES_IN_PIECES)

    def read(self, tables: DecodeTables) -> None:
        """Make the work of a recorded decode step, which reads ``tables``."""
        self.device = tables.lengths.device
        rows = torch.arange(len(tables.lengths), dtype=torch.int32, device=self.device)
        pairs, size = torch.stack([rows, rows], dim=1), self.metadata.block_size
        self.decoder, self.cross = (
            Work(rows, lengths, blocks, pairs=pairs, tiles=rows[:0], most_keys=blocks.shape[1] * size)
            for lengths, blocks in ((tables.lengths, tables.tables), (tables.cross_lengths, tables.cross_tables))
        )

    def _work(self, starts: list[int], lengths: list[int], tables: list[list[int]] | None, most_queries: int) -> Work:
        pairs: list[tuple[int, int]] = []
        tiles: list[tuple[int, int]] = []
        most_keys = 0
        for sequence, (start, stop) in enumerate(pairwise(starts)):
            if stop - start <= most_queries:
                pairs += [(row, sequence) for row in range(start, stop)]
                most_keys = max(most_keys, lengths[sequence])
            else:
                tiles += [(sequence, first) for first in range(0, stop - start, QUERIES)]
        return Work(
            query_start=self.upload(starts),
            lengths=self.upload(lengths),
            tables=None if tables is None else self.padded(tables),
            pairs=self.upload(pairs),
            tiles=self.upload(tiles),
            most_keys=most_keys,
        )

    def padded(self, tables: list[list[int]]) -> Tensor:
        """Return block tables as one padded tensor, int32 [tables, most blocks]."""
        longest = max(map(len, tables), default=0)
        return self.upload([[*table, *[0] * (longest - len(table))] for table in tables])

    def upload(self, values: Any, dtype: torch.dtype = torch.int32) -> Tensor:
        """Copy numbers to the step's device."""
        assert self.device is not None
        return upload(values, self.device, dtype)


class TritonBackend(AttentionBackend):
    """Supports fp16, bf16 and fp32, any block size, and both forms of bias."""

    name = "triton"
    cache_dtypes = frozenset({torch.float8_e4m3fn})
    replayable = replays_encoders = True

    def __init__(self, quantization: str | None = None, *, long_inputs: bool = False) -> None:
        super().__init__(quantization, long_inputs=long_inputs)
        # Relative biases by distance, cached by their table and then by their other fields.
        self._biases: MutableMapping[Tensor, dict[tuple[bool, int], Tensor]] = WeakTensorKeyDictionary()

    @classmethod
    def reasons_against(cls, device: torch.device, dtype: torch.dtype, head_dim: int, block_size: int) -> list[str]:
        """See AttentionBackend.reasons_against."""
        reasons = []
        if find_spec("triton") is None:
            reasons.append("Triton is not installed (pip install 'transept[gpu]')")
        if device.type != "cuda" and not in_interpreter():
            reasons.append("it runs on GPUs; elsewhere only with TRITON_INTERPRET=1 in the environment, and slowly")
        if dtype not in TRITON_DTYPES:
            reasons.append(f"it computes in {', '.join(str(each).removeprefix('torch.') for each in TRITON_DTYPES)}")
        if head_dim > LARGEST_HEAD:
            reasons.append(f"heads have {head_dim} dimensions, but it supports at most {LARGEST_HEAD}")
        return reasons

    def plan(self, metadata: AttentionMetadata) -> None:
        """Attach an empty TritonPlan, which layers fill as needed."""
        metadata.plan = TritonPlan(metadata)

    def plan_decode(self, metadata: AttentionMetadata, tables: DecodeTables) -> None:
        """See AttentionBackend.plan_decode."""
        metadata.plan = TritonPlan(metadata)
        metadata.plan.read(tables)

    def plan_encode(self, metadata: AttentionMetadata, tables: EncodeTables) -> None:
        """See AttentionBackend.plan_encode."""
        no_pairs = tables.tiles[:0]
        metadata.plan = TritonPlan(metadata)
        metadata.plan.encoder = Work(tables.starts, tables.lengths, None, no_pairs, tables.tiles, most_keys=0)

    def write(self, key: Tensor, value: Tensor, kv_cache: Tensor, slots: Tensor) -> None:
        """See AttentionBackend.write."""
        WRITE_CACHE.only(key, value, kv_cache, slots)

    def forward(self, call: AttentionCall) -> Tensor:
        """See AttentionBackend.forward."""
        plan: TritonPlan = call.metadata.plan
        query, scale = call.query, call.scale
        plan.device = query.device
        out = torch.empty(query.shape, dtype=query.dtype, device=query.device)
        table = None if call.bias is None else self._bias_table(call.bias)
        if call.attn_type is AttentionType.ENCODER:
            rows = (query, *call.new_keys_and_values, plan.encoder, 1, scale, table)
            GPU_ATTENTION.only(*rows, causal=False, softcap=call.softcap, window=call.reach, out=out)
            return out
        causal = call.attn_type is AttentionType.DECODER
        if causal:
            assert call.kv_cache is not None
            self.write(*call.new_keys_and_values, call.kv_cache, call.slots)
        elif call.bias is not None:
            raise NotImplementedError("cross-attention was given a bias, which it does not support: pass None")
        work = plan.decoder if causal else plan.cross
        paged = (query, *call.cache, work, call.metadata.block_size, scale, table)
        GPU_ATTENTION.only(*paged, causal=causal, softcap=call.softcap, window=call.reach, out=out)
        return out

    def _bias_table(self, bias: AttentionBias) -> Tensor:
        """Return the table that kernels read: [heads, 2 · max_distance + 1], or [heads, queries, keys] by position."""
        if isinstance(bias, Tensor):
            return bias
        own, kind = self._biases.setdefault(bias.table, {}), (bias.bidirectional, bias.max_distance)
        if kind not in own:
            distances = torch.arange(-bias.max_distance, bias.max_distance + 1, device=bias.table.device)
            own[kind] = bias.table[bias.buckets(distances)].t().contiguous()
        return own[kind]
