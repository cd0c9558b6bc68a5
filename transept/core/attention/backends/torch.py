"""The `torch` backend: PyTorch's scaled_dot_product_attention, one call for each sequence, and CPU kernels for float32.

The default on CPUs and the reference elsewhere.

Padding sequences into one batch would copy their keys. If a table's blocks are consecutive, a sequence's keys are a
view of the cache. Otherwise cross-attention reads each run of blocks in place, and self-attention copies the runs. On a
CPU in float32, one call of Transept's own kernel computes all sequences with few queries, and another kernel computes
encoders. Neither supports a soft cap, so capped scores are computed here.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from transept.core.attention.backends.base import AttentionBackend, AttentionCall
from transept.core.attention.backends.torch_plan import LastCrossWork, TorchPlan, later_keys, runs_of
from transept.core.attention.biases import AttentionBias
from transept.core.attention.metadata import AttentionMetadata, AttentionType
from transept.core.kernels.dispatch import (
    ENCODER_ATTENTION,
    MOST_QUERIES,
    NO_BIAS,
    PAGED_ATTENTION,
    WRITE_SLOTS,
    DecodeStep,
)

CAPPED_QUERIES = 512  # queries whose capped scores are computed at a time


class TorchBackend(AttentionBackend):
    """Supports any device and dtype of PyTorch, any block size, and both forms of bias."""

    name = "torch"
    cache_dtypes = frozenset({torch.float16})  # with float32 on CPUs

    def __init__(self, quantization: str | None = None, *, long_inputs: bool = False) -> None:
        """See AttentionBackend."""
        super().__init__(quantization, long_inputs=long_inputs)
        self._last_cross_work = LastCrossWork()

    @classmethod
    def reasons_against(cls, device: torch.device, dtype: torch.dtype, head_dim: int, block_size: int) -> list[str]:
        """Return no reasons: it serves everywhere."""
        return []

    def plan(self, metadata: AttentionMetadata) -> None:
        """Attach an empty TorchPlan, which layers fill as needed."""
        metadata.plan = TorchPlan(metadata, self._last_cross_work)

    def decode_step(self, metadata: AttentionMetadata, bias: AttentionBias | None) -> DecodeStep | None:
        """See AttentionBackend.decode_step. The caller ensures float32 on a CPU."""
        plan: TorchPlan = metadata.plan
        if not plan.only_decodes or isinstance(bias, Tensor):
            return None
        if plan.decode_step is None or plan.decode_step[0] is not bias:
            assert metadata.slot_mapping is not None
            row = NO_BIAS if bias is None else plan.last_row(bias, None, bias.table)
            plan.decode_step = (bias, DecodeStep(metadata.slot_mapping, plan.self_work, plan.cross_work, row))
        return plan.decode_step[1]

    def write(self, key: Tensor, value: Tensor, kv_cache: Tensor, slots: Tensor) -> None:
        """See AttentionBackend.write."""
        cache, write = kv_cache.flatten(1, 2), WRITE_SLOTS.serving(key)  # [keys and values, slots, kv_heads, head_dim]
        if write is None:
            for part, x in zip(cache, (key, value), strict=True):
                part.index_copy_(0, slots, _as_in(cache, x))
            return
        row = 0
        for run in runs_of(slots):
            end = row + run.stop - run.start
            for part, x in zip(cache, (key, value), strict=True):
                write(x[row:end], part[run])
            row = end

    def forward(self, call: AttentionCall) -> Tensor:
        """See AttentionBackend.forward."""
        if call.attn_type is AttentionType.ENCODER:
            return self._attend_encoder(call)
        cache = call.cache
        if call.attn_type is AttentionType.ENCODER_DECODER:
            if call.bias is not None:
                raise NotImplementedError("cross-attention was given a bias, which it does not support: pass None")
            return _attend_cross(call, cache)
        key, value = (_as_in(cache, x) for x in call.new_keys_and_values)
        cache[0].index_copy_(0, call.slots, key)
        cache[1].index_copy_(0, call.slots, value)
        return _attend_decoder(call, key, value, cache)

    def _attend_encoder(self, call: AttentionCall) -> Tensor:
        query, (key, value), metadata = call.query, call.new_keys_and_values, call.metadata
        bias, softcap, reach, scale = call.bias, call.softcap, call.reach, call.scale
        options: Any = {"quantization": self.quantization, "long_inputs": self.long_inputs}
        plan, lengths, out = metadata.plan, metadata.encoder_lens, torch.empty_like(query)
        for i, (start, end) in enumerate(pairwise(metadata.encoder_start_loc)):
            q, k, v = query[start:end], key[start:end], value[start:end]
            if softcap is None and not isinstance(bias, Tensor):
                attend = ENCODER_ATTENTION.serving(q, rows=len(q), **options)
                if attend is not None:
                    by_distance = plan.bias_by_distance(bias, reach, len(q), max(lengths), q)
                    attend(q, k, v, scale, out[start:end], by_distance, window=reach)
                    continue
            mask = plan.masks(AttentionType.ENCODER, bias, reach, lengths, lengths, query)[i]
            by_head = (_heads_first(q), _heads_first(k), _heads_first(v))
            out[start:end] = _attend(*by_head, scale, mask, softcap=softcap)[0]
        return out


def _as_in(cache: Tensor, x: Tensor) -> Tensor:
    """Return keys or values in the cache's dtype, clamped to its range."""
    if x.dtype is cache.dtype:
        return x
    limit = torch.finfo(cache.dtype).max
    return x.clamp(-limit, limit).to(cache.dtype)


def _attend_decoder(call: AttentionCall, key: Tensor, value: Tensor, cache: Tensor) -> Tensor:
    query, metadata, scale = call.query, call.metadata, call.scale
    bias, softcap, reach = call.bias, call.softcap, call.reach
    #  one sequence's keys    0 ............ num_computed ....... seq_len
    #                         |--- in the cache ---|--- this step's queries and keys ---|
    plan, out = metadata.plan, torch.empty_like(query)
    others: Sequence[int] = range(len(metadata.seq_lens))
    attend = PAGED_ATTENTION.serving(query) if softcap is None else None
    if attend is not None and not isinstance(bias, Tensor):
        row = NO_BIAS if bias is None and reach is None else plan.last_row(bias, reach, query)
        attend(query, cache, plan.self_work, scale, row, out)
        others = plan.long_sequences
    if not others:
        return out
    rows = [slice(*metadata.query_start_loc[i : i + 2]) for i in others]
    counts = [each.stop - each.start for each in rows]
    lengths = [metadata.seq_lens[i] for i in others]
    masks = plan.masks(AttentionType.DECODER, bias, reach, counts, lengths, query)
    by_head = _by_head(cache)
    for i, own, count, mask in zip(others, rows, counts, masks, strict=True):
        runs = plan.self_runs[i]
        k, v = _read(by_head, runs) if runs else (_heads_first(key[own]), _heads_first(value[own]))
        causal = mask is None and count > 1
        out[own] = _attend(_heads_first(query[own]), k, v, scale, mask, causal=causal, softcap=softcap)[0]
    return out


def _attend_cross(call: AttentionCall, cache: Tensor) -> Tensor:
    query, metadata, scale, softcap = call.query, call.metadata, call.scale, call.softcap
    plan, out = metadata.plan, torch.empty_like(query)
    attend = PAGED_ATTENTION.serving(query) if softcap is None else None
    if attend is not None:
        attend(query, cache, plan.cross_work, scale, NO_BIAS, out)
    by_head = _by_head(cache)
    for i, (start, end) in enumerate(pairwise(metadata.cross_query_start_loc)):
        if attend is not None and end - start <= MOST_QUERIES:
            continue
        q, runs = _heads_first(query[start:end]), plan.cross_runs[i]
        if len(runs) == 1:
            k, v = _read(by_head, runs)
            out[start:end] = _attend(q, k, v, scale, softcap=softcap)[0]
        else:
            out[start:end] = _attend_runs(q, cache, runs, scale, softcap)[0]
    return out


def _heads_first(x: Tensor) -> Tensor:
    """View [tokens, heads, dim] as [1, heads, tokens, dim], as PyTorch expects."""
    return x.transpose(0, 1).unsqueeze(0)


def _by_head(cache: Tensor) -> Tensor:
    """View [keys and values, slots, kv_heads, dim] as [keys and values, 1, kv_heads, slots, dim]."""
    return cache.transpose(1, 2).unsqueeze(1)


def _read(by_head: Tensor, runs: list[slice]) -> tuple[Tensor, ...]:
    """Return a sequence's keys and values, each [1, kv_heads, length, dim]: views of one run of blocks, else copies."""
    pieces = [by_head.narrow(3, run.start, run.stop - run.start) for run in runs]
    return (pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=3)).unbind(0)


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    mask: Tensor | None = None,
    *,
    causal: bool = False,
    softcap: float | None = None,
) -> Tensor:
    """Attend with one sequence. query: [1, heads, q, dim]. key, value: [1, kv_heads, k, dim], in the cache's dtype.

    mask: [1, heads or 1, q, k]. causal: True instead of a mask, if there are as many keys as queries.
    Returns [1, q, heads, dim].
    """
    key, value = key.to(query.dtype), value.to(query.dtype)
    if softcap is not None:
        return _attend_capped(query, key, value, scale, mask, causal, softcap)
    if mask is not None and mask.is_cuda:  # some kernels require rows that are aligned to 16 bytes, and do not check
        mask = F.pad(mask, (0, -mask.shape[3] % 8))[..., : mask.shape[3]]
    grouped = query.shape[1] != key.shape[1]
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=grouped
    ).transpose(1, 2)


def _attend_capped(
    query: Tensor, key: Tensor, value: Tensor, scale: float, mask: Tensor | None, causal: bool, softcap: float
) -> Tensor:
    """Compute `_attend` with a soft cap, for CAPPED_QUERIES queries at a time, to bound the memory of scores."""
    _, heads, num_queries, dim = query.shape
    kv_heads, num_keys = key.shape[1:3]
    out = query.new_empty(1, num_queries, heads, dim)
    for first in range(0, num_queries, CAPPED_QUERIES):
        rows = slice(first, min(first + CAPPED_QUERIES, num_queries))
        count = rows.stop - first
        grouped = (query[:, :, rows] * scale).reshape(kv_heads, -1, dim)  # [kv_heads, heads per kv head * q, dim]
        scores = _capped(grouped @ key[0].transpose(1, 2), softcap).view(heads, count, num_keys)
        if causal:
            scores = scores.masked_fill_(later_keys(count, num_keys, first, query), float("-inf"))
        if mask is not None:
            scores = scores + mask[0, :, rows]
        weights = torch.softmax(scores, dim=-1)
        if mask is not None:  # zeros if it masks every key
            weights = weights.masked_fill(scores.amax(-1, keepdim=True) == float("-inf"), 0.0)
        weights = weights.to(query.dtype).view(kv_heads, -1, num_keys)
        out[0, rows] = (weights @ value[0]).view(heads, count, dim).transpose(0, 1)
    return out


def _capped(scores: Tensor, softcap: float) -> Tensor:
    """Return ``softcap · tanh(scores / softcap)`` of scaled scores, in float32 or wider. May overwrite them."""
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
    return scores.div_(softcap).tanh_().mul_(softcap)


def _attend_runs(query: Tensor, cache: Tensor, runs: list[slice], scale: float, softcap: float | None) -> Tensor:
    """Attend over keys in several runs, which are read in place. One softmax covers the scores of all runs.

    query: [1, heads, q, dim], cache: [keys and values, slots, kv_heads, dim]. Returns [1, q, heads, dim].
    """
    heads, dim = query.shape[1], query.shape[3]
    kv_heads = cache.shape[2]
    # Query heads that share a key head are rows of one matrix, so that keys are not repeated. Queries are scaled before
    # the product, which may overflow float16 otherwise.
    grouped = (query * scale).reshape(kv_heads, -1, dim)  # [kv_heads, heads per kv head * q, dim]
    # Each [kv_heads, rows, run length].
    pieces = [grouped @ cache[0, run].to(query.dtype).permute(1, 2, 0) for run in runs]
    scores = torch.cat(pieces, dim=-1)
    if softcap is not None:
        scores = _capped(scores, softcap)
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    out = torch.zeros_like(grouped, dtype=torch.float32)  # float32, as in a fused kernel, since many runs are summed
    column = 0
    for run in runs:
        end = column + run.stop - run.start
        out += weights[..., column:end] @ cache[1, run].to(query.dtype).transpose(0, 1)
        column = end
    return out.to(query.dtype).view(1, heads, -1, dim).transpose(1, 2)
