"""The `torch` backend: PyTorch's scaled_dot_product_attention, one call a sequence.

The default on CPUs and the reference elsewhere.

A single query reads as many bytes as its keys and values hold, so on a CPU nothing is gained by padding sequences into
one batch, and much lost by copying them. Where a table's blocks are consecutive, a sequence's keys are a view of the
cache, and attention runs at memory speed (measured: 5 sequences of 1500 keys, 0.82 ms against a bound of 0.72).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

from transept.core.attention.backends.base import AttentionBackend
from transept.core.attention.biases import AttentionBias, bias_block
from transept.core.attention.metadata import AttentionMetadata, AttentionType


@dataclass(frozen=True)
class TorchPlan:
    """Cache slots as runs of consecutive numbers.

    self_runs: one list a decoder sequence, covering its seq_len slots in order; empty for a whole prefill, whose keys
        are all in hand.
    cross_runs: one list a request, covering its encoder length.
    """

    self_runs: list[list[slice]]
    cross_runs: list[list[slice]]


class TorchBackend(AttentionBackend):
    """Any device and dtype that PyTorch runs, any block size, both forms of bias."""

    name = "torch"

    @classmethod
    def reasons_against(cls, device: torch.device, dtype: torch.dtype, head_dim: int, block_size: int) -> list[str]:
        """None: it serves everywhere."""
        return []

    def plan(self, metadata: AttentionMetadata) -> None:
        """Find the runs of consecutive slots in the step's block tables."""
        starts, size = metadata.query_start_loc, metadata.block_size
        metadata.plan = TorchPlan(
            self_runs=[
                [] if starts[i + 1] - starts[i] == length else slot_runs(table, length, size)
                for i, (table, length) in enumerate(zip(metadata.block_tables, metadata.seq_lens, strict=True))
            ],
            cross_runs=[
                slot_runs(table, length, size)
                for table, length in zip(metadata.cross_block_tables, metadata.cross_seq_lens, strict=True)
            ],
        )

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
        if attn_type is AttentionType.ENCODER:
            assert key is not None
            assert value is not None
            return _attend_encoder(query, key, value, metadata.encoder_start_loc, scale, bias)
        assert kv_cache is not None
        key_cache, value_cache = kv_cache.flatten(1, 2).unbind(0)  # each [slots, kv_heads, head_dim]
        if attn_type is AttentionType.DECODER:
            assert key is not None
            assert value is not None
            assert metadata.slot_mapping is not None
            key_cache.index_copy_(0, metadata.slot_mapping, key)
            value_cache.index_copy_(0, metadata.slot_mapping, value)
            return _attend_decoder(query, key, value, key_cache, value_cache, metadata, scale, bias)
        if key is not None and value is not None:
            _write_cross(key, value, key_cache, value_cache, metadata)
        return _attend_cross(query, key_cache, value_cache, metadata, scale, bias)


def slot_runs(block_table: list[int], num_slots: int, block_size: int) -> list[slice]:
    """The slots of a sequence's first num_slots tokens, as maximal runs of consecutive cache slots.

    A table [4, 5, 6, 9] of 16-slot blocks holding 60 tokens gives [64:112, 144:156].
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


def _attend_encoder(
    query: Tensor, key: Tensor, value: Tensor, starts: list[int], scale: float, bias: AttentionBias | None
) -> Tensor:
    if len(starts) == 2:
        return _attend(query, key, value, scale, _dense(bias, 0, len(query), len(query)))
    out = torch.empty_like(query)
    for start, end in pairwise(starts):
        mask = _dense(bias, 0, end - start, end - start)
        out[start:end] = _attend(query[start:end], key[start:end], value[start:end], scale, mask)
    return out


def _attend_decoder(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    metadata: AttentionMetadata,
    scale: float,
    bias: AttentionBias | None,
) -> Tensor:
    #  one sequence's keys    0 ............ num_computed ....... seq_len
    #                         |--- in the cache ---|--- this step's queries and keys ---|
    out = torch.empty_like(query)
    starts = metadata.query_start_loc
    for i, (runs, length) in enumerate(zip(metadata.plan.self_runs, metadata.seq_lens, strict=True)):
        rows = slice(starts[i], starts[i + 1])
        num_queries = starts[i + 1] - starts[i]
        keys, values = (key[rows], value[rows]) if not runs else (_read(key_cache, runs), _read(value_cache, runs))
        mask = _dense(bias, length - num_queries, num_queries, length)
        causal = num_queries > 1
        if causal and (mask is not None or num_queries < length):
            hidden = torch.ones(num_queries, length, dtype=torch.bool, device=query.device)
            hidden = hidden.triu(1 + length - num_queries)
            base = torch.zeros(1, num_queries, length, dtype=query.dtype, device=query.device) if mask is None else mask
            mask, causal = base.masked_fill(hidden, float("-inf")), False
        out[rows] = _attend(query[rows], keys, values, scale, mask, causal)
    return out


def _attend_cross(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    metadata: AttentionMetadata,
    scale: float,
    bias: AttentionBias | None,
) -> Tensor:
    if bias is not None:
        raise NotImplementedError("a bias on cross-attention: no known family has one")
    out = torch.empty_like(query)
    starts = metadata.cross_query_start_loc
    for i, runs in enumerate(metadata.plan.cross_runs):
        rows = slice(starts[i], starts[i + 1])
        if len(runs) == 1:
            out[rows] = _attend(query[rows], key_cache[runs[0]], value_cache[runs[0]], scale, None)
        else:
            out[rows] = _attend_runs(query[rows], key_cache, value_cache, runs, scale)
    return out


def _write_cross(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, metadata: AttentionMetadata
) -> None:
    row = 0
    for request in metadata.newcomers:
        for run in metadata.plan.cross_runs[request]:
            end = row + run.stop - run.start
            key_cache[run] = key[row:end]
            value_cache[run] = value[row:end]
            row = end


def _attend(
    query: Tensor, key: Tensor, value: Tensor, scale: float, mask: Tensor | None, causal: bool = False
) -> Tensor:
    """query: [q, heads, dim], key and value: [k, kv_heads, dim], mask: [heads, q, k]. Returns [q, heads, dim]."""
    out = F.scaled_dot_product_attention(
        query.transpose(0, 1).unsqueeze(0),
        key.transpose(0, 1).unsqueeze(0),
        value.transpose(0, 1).unsqueeze(0),
        attn_mask=None if mask is None else mask.unsqueeze(0),
        is_causal=causal,
        scale=scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return out[0].transpose(0, 1)


def _attend_runs(query: Tensor, key_cache: Tensor, value_cache: Tensor, runs: list[slice], scale: float) -> Tensor:
    """Attention over keys that lie in several runs, reading each where it lies: one softmax over all runs' scores."""
    kv_heads, dim = key_cache.shape[1:]
    # Query heads that share a key head are rows of one matrix, so that no key is copied for each of them; scaled before
    # the product, which may be too large for float16 otherwise.
    grouped = (query * scale).transpose(0, 1).reshape(kv_heads, -1, dim)  # [kv_heads, heads per kv head * q, dim]
    pieces = [grouped @ key_cache[run].permute(1, 2, 0) for run in runs]  # each [kv_heads, rows, run length]
    weights = torch.softmax(torch.cat(pieces, dim=-1), dim=-1, dtype=torch.float32).to(query.dtype)
    out = torch.zeros_like(grouped, dtype=torch.float32)  # a sum over many short runs: float32, as in a fused kernel
    column = 0
    for run in runs:
        end = column + run.stop - run.start
        out += weights[..., column:end] @ value_cache[run].transpose(0, 1)
        column = end
    return out.to(query.dtype).view(query.shape[1], -1, dim).transpose(0, 1)


def _read(cache: Tensor, runs: list[slice]) -> Tensor:
    """One sequence's keys or values from the self-attention cache: a view of a single run, else a short copy."""
    return cache[runs[0]] if len(runs) == 1 else torch.cat([cache[run] for run in runs])


def _dense(bias: AttentionBias | None, first_query: int, num_queries: int, num_keys: int) -> Tensor | None:
    return None if bias is None else bias_block(bias, first_query, num_queries, num_keys)
