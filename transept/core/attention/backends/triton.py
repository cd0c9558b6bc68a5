"""The `triton` backend: paged attention by kernels of ours, with T5's relative bias read inside them.

For GPUs; in Triton's interpreter (TRITON_INTERPRET=1) it runs anywhere, slowly, so that its results can be tested.
Sequences with few queries go to a kernel that splits their keys over programs, the others to one that takes tiles of
queries.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from transept.core.attention.backends.base import AttentionBackend
from transept.core.attention.biases import AttentionBias
from transept.core.attention.metadata import AttentionMetadata, AttentionType, DecodeTables
from transept.core.transfer import upload

MOST_QUERIES = 4  # of a sequence, each of which reads the keys again; with more, tiles are faster
LARGEST_HEAD = 256
FP8 = torch.float8_e4m3fn
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@dataclass(frozen=True)
class Work:
    """What the kernels do in one kind of attention, for every layer of a step. All tensors are int32.

    query_start: [sequences + 1]. lengths: [sequences], of keys. tables: [sequences, most blocks], None where keys lie
    in rows as queries do. pairs: [queries, 2], row and sequence of each query of a sequence with few of them. tiles:
    [tiles, 2], sequence and first query of each tile of the others. most_keys: of a sequence in pairs.
    """

    query_start: Tensor
    lengths: Tensor
    tables: Tensor | None
    pairs: Tensor
    tiles: Tensor
    most_keys: int


@dataclass
class TritonPlan:
    """The work of each kind of attention, made when a first layer asks."""

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
        return self._work(starts, metadata.cross_seq_lens, tables, most_queries=MOST_QUERIES)

    @cached_property
    def cross_slots(self) -> Tensor:
        """Where the prefills' encoder tokens go, [encoder_tokens] int64."""
        metadata, size = self.metadata, self.metadata.block_size
        slots: list[int] = []
        for request in metadata.prefills:
            blocks = metadata.cross_block_tables[request]
            own = [slot for block in blocks for slot in range(block * size, (block + 1) * size)]
            slots += own[: metadata.cross_seq_lens[request]]
        return self.upload(slots, torch.int64)

    def read(self, tables: DecodeTables) -> None:
        """Take one query a sequence, whose keys lie where ``tables`` say."""
        self.device = tables.lengths.device
        rows = torch.arange(len(tables.lengths), dtype=torch.int32, device=self.device)
        pairs, size = torch.stack([rows, rows], dim=1), self.metadata.block_size
        self.decoder, self.cross = (
            Work(rows, lengths, blocks, pairs=pairs, tiles=rows[:0], most_keys=blocks.shape[1] * size)
            for lengths, blocks in ((tables.lengths, tables.tables), (tables.cross_lengths, tables.cross_tables))
        )

    def _work(self, starts: list[int], lengths: list[int], tables: list[list[int]] | None, most_queries: int) -> Work:
        from transept.core.attention.backends.triton_kernels import QUERIES

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
        """Block tables as one, int32 [tables, most blocks]."""
        longest = max(map(len, tables), default=0)
        return self.upload([[*table, *[0] * (longest - len(table))] for table in tables])

    def upload(self, values: list[Any], dtype: torch.dtype = torch.int32) -> Tensor:
        """Put numbers on the step's device."""
        assert self.device is not None
        return upload(values, self.device, dtype)


class TritonBackend(AttentionBackend):
    """fp16, bf16 and fp32, any block size, both forms of bias."""

    name = "triton"
    cache_dtypes = frozenset({torch.float8_e4m3fn})
    replayable = True

    def __init__(self, quantization: str | None = None) -> None:
        super().__init__(quantization)
        # What relative biases are by distance: by their table, and by the rest of them.
        self._biases: MutableMapping[Tensor, dict[tuple[bool, int], Tensor]] = WeakTensorKeyDictionary()

    @classmethod
    def reasons_against(cls, device: torch.device, dtype: torch.dtype, head_dim: int, block_size: int) -> list[str]:
        """See AttentionBackend.reasons_against."""
        reasons = []
        if find_spec("triton") is None:
            reasons.append("Triton is not installed (pip install 'transept[gpu]')")
        if device.type != "cuda" and not _in_interpreter():
            reasons.append("it runs on GPUs; elsewhere only with TRITON_INTERPRET=1 in the environment, and slowly")
        if dtype not in DTYPES:
            reasons.append(f"it computes in {', '.join(str(each).removeprefix('torch.') for each in DTYPES)}")
        if head_dim > LARGEST_HEAD:
            reasons.append(f"heads have {head_dim} dimensions, at most {LARGEST_HEAD} are possible")
        return reasons

    def plan(self, metadata: AttentionMetadata) -> None:
        """Nothing yet: see TritonPlan."""
        metadata.plan = TritonPlan(metadata)

    def plan_decode(self, metadata: AttentionMetadata, tables: DecodeTables) -> None:
        """See AttentionBackend.plan_decode."""
        metadata.plan = TritonPlan(metadata)
        metadata.plan.read(tables)

    def write_cross(self, key: Tensor, value: Tensor, kv_cache: Tensor, metadata: AttentionMetadata) -> None:
        """See AttentionBackend.write_cross."""
        plan: TritonPlan = metadata.plan
        plan.device = kv_cache.device
        write(key, value, kv_cache, plan.cross_slots)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        kv_cache: Tensor | None,
        metadata: AttentionMetadata,
        attn_type: AttentionType,
        scale: float,
        bias: AttentionBias | None,
    ) -> Tensor:
        """See AttentionBackend.forward."""
        plan: TritonPlan = metadata.plan
        plan.device = query.device
        out = torch.empty(query.shape, dtype=query.dtype, device=query.device)
        table = None if bias is None else self._bias_table(bias)
        if attn_type is AttentionType.ENCODER:
            assert key is not None
            assert value is not None
            _attend(query, key, value, plan.encoder, 1, scale, table, causal=False, out=out)
            return out
        assert kv_cache is not None
        cache = kv_cache.flatten(1, 2)  # [keys and values, slots, kv_heads, head_dim]
        causal = attn_type is AttentionType.DECODER
        if causal:
            assert key is not None
            assert value is not None
            assert metadata.slot_mapping is not None
            write(key, value, kv_cache, metadata.slot_mapping)
        elif bias is not None:
            raise NotImplementedError("a bias on cross-attention: no known family has one")
        elif key is not None and value is not None:
            self.write_cross(key, value, kv_cache, metadata)
        work = plan.decoder if causal else plan.cross
        _attend(query, cache[0], cache[1], work, metadata.block_size, scale, table, causal=causal, out=out)
        return out

    def _bias_table(self, bias: AttentionBias) -> Tensor:
        """As the kernels read it: [heads, 2 · farthest + 1] by distance, or [heads, queries, keys] by position."""
        if isinstance(bias, Tensor):
            return bias
        own, kind = self._biases.setdefault(bias.table, {}), (bias.bidirectional, bias.max_distance)
        if kind not in own:
            distances = torch.arange(-bias.max_distance, bias.max_distance + 1, device=bias.table.device)
            own[kind] = bias.table[bias.buckets(distances)].t().contiguous()
        return own[kind]


def write(key: Tensor, value: Tensor, kv_cache: Tensor, slots: Tensor) -> None:
    """Put keys and values, [tokens, kv_heads, head_dim] each, into slots [tokens] of the cache.

    A cache in fp8 takes numbers beyond its largest for that.
    """
    from transept.core.attention.backends import triton_kernels as kernels

    keys, values = kv_cache.flatten(1, 2).flatten(2)  # [slots, kv_heads · head_dim] each
    key, value = key.flatten(1), value.flatten(1)
    tokens, size = key.shape
    if tokens:
        grid = -(-tokens // kernels.WRITE_ROWS), -(-size // kernels.WRITE_COLUMNS)
        kernels.write_rows[grid](
            *(key, value, keys, values, slots, tokens, key.stride(0), value.stride(0), size),
            LARGEST=torch.finfo(FP8).max if kv_cache.dtype is FP8 else 0.0,
            ROWS=kernels.WRITE_ROWS,
            COLUMNS=kernels.WRITE_COLUMNS,
        )


def _in_interpreter() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"


def _tile(dtype: torch.dtype, padded_dim: int) -> tuple[int, int]:
    """How many keys a tile of attend_tiles has and how many warps compute it, so that a GPU's registers hold it.

    float32 is multiplied without tensor cores, for which each thread needs whole rows there.
    """
    keys, warps = 64 if padded_dim <= 64 else 32, 4 if padded_dim <= 128 else 8
    return (keys // 2, warps * 2) if dtype is torch.float32 else (keys, warps)


def _attend(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    work: Work,
    block_size: int,
    scale: float,
    bias: Tensor | None,
    *,
    causal: bool,
    out: Tensor,
) -> None:
    """Write attention's output, [rows, heads, dim]. keys, values: [rows or slots, kv_heads, dim]."""
    from transept.core.attention.backends import triton_kernels as kernels

    heads, dim = query.shape[1:]
    query, keys, values = (each if each.stride(-1) == 1 else each.contiguous() for each in (query, keys, values))
    form = kernels.NO_BIAS if bias is None else kernels.BY_DISTANCE if bias.dim() == 2 else kernels.DENSE
    if bias is not None and bias.stride(-1) != 1:
        bias = bias.contiguous()
    tables = work.lengths if work.tables is None else work.tables  # read by no program where keys lie in rows
    strides = [stride for each in (query, keys, values, out) for stride in each.stride()[:2]]
    strides.append(tables.stride(0))
    strides += [0, 0] if bias is None else [bias.stride(0), bias.stride(1) if bias.dim() == 3 else 0]
    constants = {
        "GROUP": heads // keys.shape[1],
        "DIM": dim,
        "PADDED_DIM": max(16, 1 << (dim - 1).bit_length()),
        "BLOCK_SIZE": block_size,
        "BIAS": form,
        "FARTHEST": bias.shape[1] // 2 if bias is not None and form == kernels.BY_DISTANCE else 0,
    }
    biases = query if bias is None else bias
    wide = constants["PADDED_DIM"] > 128
    if len(work.tiles):
        keys_at_a_time, warps = _tile(query.dtype, constants["PADDED_DIM"])
        kernels.attend_tiles[len(work.tiles), heads](
            *(query, keys, values, out, work.tiles, work.query_start, work.lengths, tables, biases),
            *strides,
            scale,
            **constants,
            QUERIES=kernels.QUERIES,
            KEYS=keys_at_a_time,
            PAGED=work.tables is not None,
            CAUSAL=causal,
            UPCAST=_in_interpreter() and query.dtype is torch.bfloat16,  # whose product is wrong there
            num_warps=warps,
            num_stages=2,
        )
    if len(work.pairs):
        pieces = -(-work.most_keys // kernels.PIECE)
        shape = (len(work.pairs), heads, pieces if pieces > 1 else 0)
        sums = torch.empty(*shape, dim, dtype=torch.float32, device=query.device)
        tops = torch.empty(*shape, 2, dtype=torch.float32, device=query.device)
        kernels.attend_pieces[heads, len(work.pairs), pieces](
            *(query, keys, values, out, sums, tops, work.pairs, work.lengths, tables, biases),
            *strides,
            scale,
            **constants,
            PIECE=kernels.PIECE,
            KEYS=kernels.PIECE_KEYS,
            WHOLE=pieces == 1,
            num_warps=8 if wide else 4,
        )
        if pieces > 1:
            padded = {name: constants[name] for name in ("DIM", "PADDED_DIM")}
            kernels.join_pieces[len(work.pairs), heads](
                *(sums, tops, out, work.pairs, work.lengths, *out.stride()[:2], pieces), **padded, PIECE=kernels.PIECE
            )
