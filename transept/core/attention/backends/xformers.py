"""The `xformers` backend: xFormers' operators on GPUs in half precision.

Flash attention computes encoders and whole prompts; triton_splitk reads the paged cache. No operator supports a bias
together with sequences of different lengths. So the kernels of the `triton` backend compute calls with a bias, a soft
cap or a window, prompts that continue a cached context, and recorded steps.

Operators are called directly, because xFormers' dispatch disables them if its C++ extension cannot load, although these
two need only PyTorch and Triton.
"""

from __future__ import annotations

import importlib
import logging
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from transept.core.attention.backends.base import AttentionCall
from transept.core.attention.backends.triton import TritonBackend, TritonPlan
from transept.core.attention.metadata import AttentionMetadata, AttentionType, DecodeTables

PAGE = 64  # slots that triton_splitk reads at a time; a block must be a multiple
HEAD_DIMS = (16, 32, 64, 128, 256)  # of triton_splitk
XFORMERS_DTYPES = (torch.float16, torch.bfloat16)
NO_BLOCK_POINTERS = (3, 9)  # first version of Triton that cannot compile triton_splitk


@dataclass
class XformersPlan(TritonPlan):
    """xFormers' masks of a step. Each is made, and copied to the GPU, when the first layer asks for it.

    by_triton: True if the kernels of the `triton` backend compute the step.
    """

    by_triton: bool = False

    @cached_property
    def encoder_mask(self) -> Any:
        """The mask of encoder self-attention."""
        starts = self.metadata.encoder_start_loc
        return _masks().BlockDiagonalMask.from_seqlens(
            [stop - start for start, stop in pairwise(starts)], device=self.device
        )

    @cached_property
    def self_calls(self) -> SelfCalls:
        """The calls of decoder self-attention."""
        metadata = self.metadata
        counts = [stop - start for start, stop in pairwise(metadata.query_start_loc)]
        single = [i for i, count in enumerate(counts) if count == 1]
        whole = [i for i, count in enumerate(counts) if 1 < count == metadata.seq_lens[i]]
        decode = prefill = None
        if single:
            decode = self._paged([1] * len(single), single, metadata.block_tables, metadata.seq_lens)
        if whole:
            prefill = _masks().BlockDiagonalCausalMask.from_seqlens([counts[i] for i in whole], device=self.device)
        return SelfCalls(
            decode=decode,
            decode_rows=self._rows(single),
            prefill=prefill,
            prefill_rows=self._rows(whole),
            continues=len(single) + len(whole) < len(counts),
        )

    @cached_property
    def cross_mask(self) -> Any:
        """The mask of cross-attention."""
        metadata = self.metadata
        counts = [stop - start for start, stop in pairwise(metadata.cross_query_start_loc)]
        return self._paged(counts, range(len(counts)), metadata.cross_block_tables, metadata.cross_seq_lens)

    def _paged(self, counts: list[int], which: Any, tables: list[list[int]], lengths: list[int]) -> Any:
        """Return a mask by which queries, counts[i] of the i-th sequence in `which`, see all its keys in the cache."""
        size = self.metadata.block_size
        padded = self.padded([tables[i] for i in which])
        mask = _masks().BlockDiagonalPaddedKeysMask.from_seqlens(
            q_seqlen=counts,
            kv_seqlen=[lengths[i] for i in which],
            kv_padding=padded.shape[1] * size,
            device=self.device,
        )
        return mask.make_paged(padded, size, _masks().PagedBlockDiagonalPaddedKeysMask)

    def _rows(self, which: list[int]) -> Tensor | slice:
        """Return the query rows of some sequences; a slice for all sequences."""
        starts = self.metadata.query_start_loc
        if len(which) == len(starts) - 1:
            return slice(None)
        rows = [row for i in which for row in range(starts[i], starts[i + 1])]
        return self.upload(rows, torch.int64)


@dataclass(frozen=True)
class SelfCalls:
    """Self-attention of a step: sequences with one query, and whole prompts.

    continues: True if other sequences have several queries after cached keys.
    """

    decode: Any
    decode_rows: Tensor | slice
    prefill: Any
    prefill_rows: Tensor | slice
    continues: bool


class XformersBackend(TritonBackend):
    """Supports fp16 and bf16, with cache blocks of a multiple of 64 slots."""

    name = "xformers"
    cache_dtypes = frozenset()
    replays_encoders = False

    @classmethod
    def reasons_against(cls, device: torch.device, dtype: torch.dtype, head_dim: int, block_size: int) -> list[str]:
        """See AttentionBackend.reasons_against."""
        reasons = _reasons_against_flash(device, dtype)
        if head_dim not in HEAD_DIMS:
            reasons.append(f"heads have {head_dim} dimensions, but it supports {', '.join(map(str, HEAD_DIMS))}")
        if block_size % PAGE:
            reasons.append(f"block_size is {block_size}, but it supports multiples of {PAGE}")
        if find_spec("triton") is not None and _triton_version() >= NO_BLOCK_POINTERS:
            wanted, found = (".".join(map(str, each)) for each in (NO_BLOCK_POINTERS, _triton_version()))
            reasons.append(f"its triton_splitk needs Triton before {wanted}, and {found} is installed")
        return reasons

    def plan(self, metadata: AttentionMetadata) -> None:
        """Attach an empty XformersPlan, which layers fill as needed."""
        metadata.plan = XformersPlan(metadata)

    def plan_decode(self, metadata: AttentionMetadata, tables: DecodeTables) -> None:
        """See AttentionBackend.plan_decode. Uses the `triton` backend's kernels: xFormers' masks need host lists."""
        metadata.plan = XformersPlan(metadata, by_triton=True)
        metadata.plan.read(tables)

    def forward(self, call: AttentionCall) -> Tensor:
        """See AttentionBackend.forward."""
        plan: XformersPlan = call.metadata.plan
        query, kv_cache, scale = call.query, call.kv_cache, call.scale
        plan.device = query.device
        causal = call.attn_type is AttentionType.DECODER
        limited = call.bias is not None or call.softcap is not None or call.window is not None
        if limited or plan.by_triton or (causal and plan.self_calls.continues):
            return super().forward(call)
        if call.attn_type is AttentionType.ENCODER:
            return _flash(query, *call.new_keys_and_values, plan.encoder_mask, scale)
        assert kv_cache is not None
        if not causal:
            return _split_keys(query, kv_cache, plan.cross_mask, scale)
        key, value = call.new_keys_and_values
        self.write(key, value, kv_cache, call.slots)
        calls, out = plan.self_calls, torch.empty(query.shape, dtype=query.dtype, device=query.device)
        if calls.decode is not None:
            out[calls.decode_rows] = _split_keys(query[calls.decode_rows], kv_cache, calls.decode, scale)
        if calls.prefill is not None:
            rows = calls.prefill_rows
            out[rows] = _flash(query[rows], key[rows], value[rows], calls.prefill, scale)
        return out


def _masks() -> Any:
    return importlib.import_module("xformers.ops.fmha.attn_bias")


def _reasons_against_flash(device: torch.device, dtype: torch.dtype) -> list[str]:
    """Return why xFormers' flash attention cannot be used, a sentence each."""
    reasons = []
    if device.type != "cuda":
        reasons.append("it runs on GPUs")
    if dtype not in XFORMERS_DTYPES:
        reasons.append("it computes in float16 and bfloat16")
    if find_spec("xformers") is None or find_spec("triton") is None:
        return [*reasons, "xFormers and Triton are not both installed (pip install 'transept[gpu]')"]
    logging.getLogger("xformers").setLevel(logging.ERROR)  # its warning that the C++ extension cannot load
    try:
        flash = importlib.import_module("xformers.ops.fmha.flash")
    except Exception as error:  # of a build for another PyTorch
        return [*reasons, f"xFormers cannot be imported: {error}"]
    if flash.FLASH_VERSION == "0.0.0":
        reasons.append("neither its flash attention nor PyTorch's is available")
    return reasons


def _triton_version() -> tuple[int, ...]:
    import triton

    return tuple(int(part) for part in triton.__version__.split(".")[:2])


def _inputs(query: Tensor, key: Tensor, value: Tensor, mask: Any, scale: float) -> Any:
    common = importlib.import_module("xformers.ops.fmha.common")
    return common.Inputs(query[None], key[None], value[None], attn_bias=mask, scale=scale)


def _expanded(key: Tensor, heads: int) -> Tensor:
    """Repeat each head of [..., kv_heads, dim] for the query heads that share it."""
    return key if key.shape[-2] == heads else key.repeat_interleave(heads // key.shape[-2], dim=-2)


def _flash(query: Tensor, key: Tensor, value: Tensor, mask: Any, scale: float) -> Tensor:
    """Compute flash attention of flattened sequences. query, key, value: [tokens, heads, dim]."""
    flash = importlib.import_module("xformers.ops.fmha.flash")
    key, value = _expanded(key, query.shape[1]), _expanded(value, query.shape[1])
    out: Tensor = flash.FwOp.apply(_inputs(query, key, value, mask, scale), False)[0]
    return out[0]


def _split_keys(query: Tensor, kv_cache: Tensor, mask: Any, scale: float) -> Tensor:
    """Attend with queries [tokens, heads, dim] over the paged cache [2, blocks, block_size, heads, dim]."""
    splitk = importlib.import_module("xformers.ops.fmha.triton_splitk")
    key, value = kv_cache.flatten(1, 2)
    kv_heads, group = key.shape[1], query.shape[1] // key.shape[1]
    if group > 1:  # [..., kv_heads, group, dim], where a key head stands for its whole group
        query = query.unflatten(1, (kv_heads, group))
        key, value = (each.unsqueeze(2).expand(-1, -1, group, -1) for each in (key, value))
    out: Tensor = splitk.FwOp.apply(_inputs(query, key, value, mask, scale), False)[0]
    # From [1, tokens, ...], or from [sequences, 1, ...] without a split.
    return out.reshape(len(query), kv_heads * group, -1)
