"""Triton kernels of attention of few queries over a paged cache: pieces of a sequence's keys, and what joins them.

Launched by `transept.core.kernels.gpu.attention`, with pointers, strides and results as in `tile_kernel`. Pieces begin
at a sequence's own first key; many queries have longer pieces, which changes the order of sums alone.
"""

import triton
import triton.language as tl

from transept.core.kernels.gpu.scores import ANY, LOG2_E, LOWEST, bias_of, cache_slots, capped


@triton.jit(**ANY)
def attend_pieces(
    query,
    keys,
    values,
    out,
    sums_out,
    tops_out,
    pairs,
    lengths,
    tables,
    bias,
    query_row,
    query_head,
    key_row,
    key_head,
    value_row,
    value_head,
    out_row,
    out_head,
    table_row,
    bias_head,
    bias_row,
    scale,
    GROUP: tl.constexpr,
    DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEADS: tl.constexpr,
    KEYS: tl.constexpr,
    PIECE: tl.constexpr,
    WHOLE: tl.constexpr,
    BIAS: tl.constexpr,
    FARTHEST: tl.constexpr,
    SOFTCAP: tl.constexpr,
    WINDOW: tl.constexpr,
):
    """Attention of one query and HEADS heads over PIECE keys of its sequence.

    The grid is (heads / HEADS, queries, pieces): neighbours in it read neighbouring heads of the same slots. Each of
    KEYS lanes of a head has a separate softmax over every KEYS-th key, so that threads wait for one another only when
    the lanes are put together at the end.

    pairs: int32 [queries, 2], each query's row and its sequence, of which it sees every key, or the last WINDOW.
    WHOLE: there is one piece, which goes to out; else sums_out [queries, heads, pieces, dim] and tops_out [queries,
    heads, pieces, 2] take the piece's values weighted by exp2(score - highest score), that highest score and the sum of
    the weights, with scores multiplied by LOG2_E.
    """
    heads = tl.program_id(0) * HEADS + tl.arange(0, HEADS)
    index = tl.program_id(1)
    piece = tl.program_id(2)
    row = tl.load(pairs + 2 * index).to(tl.int64)
    sequence = tl.load(pairs + 2 * index + 1)
    length = tl.load(lengths + sequence)
    first = tl.maximum(length - WINDOW, 0) if WINDOW != 0 else 0  # key that it sees
    if piece * PIECE < length and (piece + 1) * PIECE > first:
        dims = tl.arange(0, PADDED_DIM)
        whole = (dims < DIM)[None, :]
        q = tl.load(query + row * query_row + heads[:, None] * query_head + dims[None, :], mask=whole, other=0.0).to(
            tl.float32
        )
        q *= scale * LOG2_E
        tops = tl.full([KEYS, HEADS], LOWEST, tl.float32)
        totals = tl.zeros([KEYS, HEADS], tl.float32)
        sums = tl.zeros([KEYS, HEADS, PADDED_DIM], tl.float32)
        start = tl.maximum(piece * PIECE, first // KEYS * KEYS)
        k_at = (heads // GROUP * key_head)[None, :, None] + dims[None, None, :]
        v_at = (heads // GROUP * value_head)[None, :, None] + dims[None, None, :]
        for key in tl.range(start, tl.minimum((piece + 1) * PIECE, length), KEYS, num_stages=3):
            columns = key + tl.arange(0, KEYS)
            seen = columns < length
            if WINDOW != 0:
                seen = seen & (columns >= first)
            slots = cache_slots(columns, seen, tables + sequence * table_row, BLOCK_SIZE)[:, None, None]
            mask = seen[:, None, None] & whole[None, :, :]
            k = tl.load(keys + slots * key_row + k_at, mask=mask, other=0.0)
            v = tl.load(values + slots * value_row + v_at, mask=mask, other=0.0)
            scores = tl.sum(k.to(tl.float32) * q[None, :, :], 2)
            if SOFTCAP != 0:
                scores = capped(scores, SOFTCAP)
            if BIAS != 0:
                own_bias = bias + heads[None, :] * bias_head
                added = bias_of(own_bias, length - 1, columns[:, None], seen[:, None], bias_row, FARTHEST, BIAS)
                scores += added * LOG2_E
            scores = tl.where(seen[:, None], scores, float("-inf"))
            higher = tl.maximum(tops, scores)
            weights = tl.exp2(scores - higher)
            shrink = tl.exp2(tops - higher)
            totals = totals * shrink + weights
            sums = sums * shrink[:, :, None] + weights[:, :, None] * v.to(tl.float32)
            tops = higher
        top = tl.max(tops, 0)
        shares = tl.exp2(tops - top[None, :])
        total = tl.sum(totals * shares, 0)
        sums = tl.sum(sums * shares[:, :, None], 0)
        if WHOLE:
            total = tl.where(total == 0.0, 1.0, total)[:, None]
            out_at = out + row * out_row + heads[:, None] * out_head + dims[None, :]
            tl.store(out_at, (sums / total).to(out.dtype.element_ty), mask=whole)
        else:
            place = ((index * tl.num_programs(0) * HEADS + heads) * tl.num_programs(2) + piece).to(tl.int64)
            tl.store(sums_out + place[:, None] * DIM + dims[None, :], sums, mask=whole)
            tl.store(tops_out + 2 * place, top)
            tl.store(tops_out + 2 * place + 1, total)


@triton.jit(**ANY)
def join_pieces(
    sums_in,
    tops_in,
    out,
    pairs,
    lengths,
    out_row,
    out_head,
    num_pieces,
    DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    PIECE: tl.constexpr,
    WINDOW: tl.constexpr,
):
    """Join the softmax of attend_pieces' pieces in the window; the grid is (queries, heads)."""
    index = tl.program_id(0)
    head = tl.program_id(1)
    row = tl.load(pairs + 2 * index).to(tl.int64)
    length = tl.load(lengths + tl.load(pairs + 2 * index + 1))
    dims = tl.arange(0, PADDED_DIM)
    whole = dims < DIM
    top = float("-inf")
    total = 0.0
    sums = tl.zeros([PADDED_DIM], tl.float32)
    first = tl.maximum(length - WINDOW, 0) // PIECE if WINDOW != 0 else 0
    for piece in range(first, tl.cdiv(length, PIECE)):
        place = ((index * tl.num_programs(1) + head) * num_pieces + piece).to(tl.int64)
        piece_top = tl.load(tops_in + 2 * place)
        higher = tl.maximum(top, piece_top)
        shrink = tl.exp2(top - higher)
        share = tl.exp2(piece_top - higher)
        total = total * shrink + share * tl.load(tops_in + 2 * place + 1)
        sums = sums * shrink + share * tl.load(sums_in + place * DIM + dims, mask=whole, other=0.0)
        top = higher
    total = tl.where(total == 0.0, 1.0, total)
    tl.store(out + row * out_row + head * out_head + dims, (sums / total).to(out.dtype.element_ty), mask=whole)
