"""Attention on a GPU: how many programs of which kernels a kind of attention takes. Called by the `triton` backend."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch
from torch import Tensor

QUERIES = 64  # of a tile in attend_tiles
PIECE = 512  # keys that a program of attend_pieces reads with few queries
MANY_PROGRAMS = 256  # enough to occupy a GPU; if queries and heads alone make as many, programs read LONG_PIECE keys
LONG_PIECE = 2048
TILE_KEYS = 32  # keys that a program reads at a time, of one head or two
_NO_BIAS, _BY_DISTANCE, _DENSE = 0, 1, 2  # forms of bias


@dataclass(frozen=True)
class Work:
    """The kernels' work in one type of attention, for every layer of a step. All tensors are int32.

    query_start: [sequences + 1]. lengths: [sequences], of keys. tables: [sequences, most blocks], None if keys
    are rows like queries. pairs: [queries, 2], row and sequence of each query of a sequence with few of them. tiles:
    [tiles, 2], sequence and first query of each tile of the others. most_keys: of a sequence in pairs.
    """

    query_start: Tensor
    lengths: Tensor
    tables: Tensor | None
    pairs: Tensor
    tiles: Tensor
    most_keys: int


def attend_flattened(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    work: Work,
    block_size: int,
    scale: float,
    bias: Tensor | None,
    *,
    causal: bool,
    softcap: float | None = None,
    window: tuple[int, int] | None = None,
    out: Tensor,
) -> None:
    """Write attention's output, [rows, heads, dim]. keys, values: [rows or slots, kv_heads, dim].

    window: a query sees so many keys before it and after it.
    """
    from transept.core.kernels.gpu.piece_kernels import attend_pieces, join_pieces
    from transept.core.kernels.gpu.tile_kernel import attend_tiles

    heads, dim = query.shape[1:]
    query, keys, values = (each if each.stride(-1) == 1 else each.contiguous() for each in (query, keys, values))
    form = _NO_BIAS if bias is None else _BY_DISTANCE if bias.dim() == 2 else _DENSE
    if bias is not None and bias.stride(-1) != 1:
        bias = bias.contiguous()
    tables = work.lengths if work.tables is None else work.tables  # without tables, no program reads it
    strides = [stride for each in (query, keys, values, out) for stride in each.stride()[:2]]
    strides.append(tables.stride(0))
    strides += [0, 0] if bias is None else [bias.stride(0), bias.stride(1) if bias.dim() == 3 else 0]
    padded_dim = max(16, 1 << (dim - 1).bit_length())
    constants = {
        "GROUP": heads // keys.shape[1],
        "DIM": dim,
        "PADDED_DIM": padded_dim,
        "BLOCK_SIZE": block_size,
        "BIAS": form,
        "FARTHEST": bias.shape[1] // 2 if bias is not None and form == _BY_DISTANCE else 0,
        "SOFTCAP": softcap or 0.0,
        "WINDOW": 0 if window is None else window[0] + 1,
    }
    biases = query if bias is None else bias
    wide = padded_dim > 128
    if len(work.tiles):
        keys_at_a_time, warps, stages = _tile(query.dtype, padded_dim)
        attend_tiles[len(work.tiles), heads](
            *(query, keys, values, out, work.tiles, work.query_start, work.lengths, tables, biases),
            *strides,
            scale,
            **constants,
            AFTER=0 if window is None else window[1],
            QUERIES=QUERIES,
            KEYS=keys_at_a_time,
            STAGES=stages,
            PAGED=work.tables is not None,
            CAUSAL=causal,
            UPCAST=in_interpreter() and query.dtype is torch.bfloat16,  # whose product is wrong there
            num_warps=warps,
        )
    if len(work.pairs):
        heads_per_program = 2 if heads % 2 == 0 and padded_dim <= 64 else 1
        piece = LONG_PIECE if len(work.pairs) * heads // heads_per_program >= MANY_PROGRAMS else PIECE
        pieces = -(-work.most_keys // piece)
        shape = (len(work.pairs), heads, pieces if pieces > 1 else 0)
        sums = torch.empty(*shape, dim, dtype=torch.float32, device=query.device)
        tops = torch.empty(*shape, 2, dtype=torch.float32, device=query.device)
        attend_pieces[heads // heads_per_program, len(work.pairs), pieces](
            *(query, keys, values, out, sums, tops, work.pairs, work.lengths, tables, biases),
            *strides,
            scale,
            **constants,
            HEADS=heads_per_program,
            PIECE=piece,
            KEYS=TILE_KEYS // heads_per_program,
            WHOLE=pieces == 1,
            num_warps=8 if wide else 4,
        )
        if pieces > 1:
            padded = {name: constants[name] for name in ("DIM", "PADDED_DIM", "WINDOW")}
            join_pieces[len(work.pairs), heads](
                *(sums, tops, out, work.pairs, work.lengths, *out.stride()[:2], pieces), **padded, PIECE=piece
            )


def in_interpreter() -> bool:
    """Return True if Triton's kernels run in its interpreter, on tensors of any device."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def _tile(dtype: torch.dtype, padded_dim: int) -> tuple[int, int, int]:
    """Return the keys of a tile of attend_tiles, its warps, and the number of pipeline stages.

    The largest that fit registers and shared memory. float32 is multiplied without tensor cores, and each thread then
    needs whole rows.
    """
    keys, warps = 64 if padded_dim <= 64 else 32, 4 if padded_dim <= 128 else 8
    if dtype is torch.float32:
        return keys // 2, warps * 2, 2 if padded_dim <= 64 else 1
    return keys, warps, 3 if padded_dim <= 128 else 2
