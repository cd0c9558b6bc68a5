"""Triton kernel of attention by tiles of queries, with keys in a row or in a paged cache.

Launched by `transept.core.kernels.gpu.attention`. Sums and the softmax are float32 for all dtypes. A
sequence's result depends on that sequence alone: its tiles begin at its own first query and key. A key whose bias is
minus infinity has no weight; a query that sees no key gets zeros.

All pointers but bias are to [rows, heads, dim] tensors whose last dimension is dense; strides are in elements. Keys and
values may be fp8. lengths holds the keys of each sequence, tables its cache blocks. The queries of a sequence are its
last positions. SOFTCAP, WINDOW and AFTER: see `scores`.
"""

import triton
import triton.language as tl

from transept.core.kernels.gpu.scores import ANY, LOG2_E, bias_of, cache_slots, capped, first_in_window


@triton.jit(**ANY)
def attend_tiles(
    query,
    keys,
    values,
    out,
    tiles,
    query_start,
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
    QUERIES: tl.constexpr,
    KEYS: tl.constexpr,
    STAGES: tl.constexpr,
    PAGED: tl.constexpr,
    CAUSAL: tl.constexpr,
    BIAS: tl.constexpr,
    FARTHEST: tl.constexpr,
    SOFTCAP: tl.constexpr,
    WINDOW: tl.constexpr,
    AFTER: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """Attention of QUERIES queries of one sequence and head over all its keys; the grid is (tiles, heads).

    tiles: int32 [tiles, 2], each with its sequence and its first query there. GROUP: query heads of a key head.
    STAGES: of pipelined loads; with one, all tiles of keys are masked. UPCAST: convert operands of products to float32.
    """
    tile = tl.program_id(0)
    head = tl.program_id(1)
    sequence = tl.load(tiles + 2 * tile)
    first = tl.load(tiles + 2 * tile + 1)
    begin = tl.load(query_start + sequence)
    num_queries = tl.load(query_start + sequence + 1) - begin
    length = tl.load(lengths + sequence)
    queries = first + tl.arange(0, QUERIES)
    real = queries < num_queries
    positions = length - num_queries + queries
    dims = tl.arange(0, PADDED_DIM)
    whole = dims < DIM
    rows = (begin + queries).to(tl.int64)
    q = tl.load(
        query + rows[:, None] * query_row + head * query_head + dims[None, :],
        mask=real[:, None] & whole[None, :],
        other=0.0,
    )
    if UPCAST:
        q = q.to(tl.float32)
    if not PAGED:  # keys are rows like their queries
        keys += begin.to(tl.int64) * key_row
        values += begin.to(tl.int64) * value_row
    keys += head // GROUP * key_head
    values += head // GROUP * value_head
    table = tables + sequence * table_row
    own_bias = bias + head * bias_head
    top = tl.full([QUERIES], float("-inf"), tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    sums = tl.zeros([QUERIES, PADDED_DIM], tl.float32)
    #  keys     0 .......... start .......... from_all .......... middle .......... stop .......... length
    #           | seen by none | by some queries | by all, in whole tiles | by some    | by none       |
    position = length - num_queries + first  # of the tile's first query
    seen_by_all = position + 1 if CAUSAL else length
    stop = tl.minimum(length, seen_by_all + QUERIES - 1) if CAUSAL else length
    start = 0
    from_all = 0
    if WINDOW != 0:
        start = tl.maximum(first_in_window(position, WINDOW), 0) // KEYS * KEYS
        from_all = tl.maximum(first_in_window(position + QUERIES - 1, WINDOW), 0)
        from_all = (from_all + KEYS - 1) // KEYS * KEYS if STAGES > 1 else start
        if not CAUSAL:
            seen_by_all = tl.minimum(length, position + AFTER + 1)
            stop = tl.minimum(length, seen_by_all + QUERIES - 1)
    middle = tl.maximum(seen_by_all // KEYS * KEYS, from_all) if STAGES > 1 else from_all
    for part in tl.static_range(0 if WINDOW != 0 else 1, 3):
        first_key = start if part == 0 else from_all if part == 1 else middle
        last_key = tl.minimum(from_all, stop) if part == 0 else middle if part == 1 else stop
        for key in tl.range(first_key, last_key, KEYS, num_stages=STAGES if part == 1 else 1):
            columns = key + tl.arange(0, KEYS)
            seen = columns < length
            slots = columns
            if PAGED:
                slots = cache_slots(columns, seen, table, BLOCK_SIZE)
            k_at = keys + slots[None, :] * key_row + dims[:, None]
            v_at = values + slots[:, None] * value_row + dims[None, :]
            if part != 1 or DIM != PADDED_DIM:
                k = tl.load(k_at, mask=seen[None, :] & whole[:, None], other=0.0)
                v = tl.load(v_at, mask=seen[:, None] & whole[None, :], other=0.0)
            else:
                k = tl.load(k_at)
                v = tl.load(v_at)
            # The product starts from the bias: added afterwards, it would make Triton compute the softmax in two
            # layouts. A soft cap comes before the bias.
            factor = scale * LOG2_E
            initial = tl.zeros([QUERIES, KEYS], tl.float32)
            added = initial
            if BIAS != 0:
                mask = real[:, None] & seen[None, :]
                added = bias_of(own_bias, positions[:, None], columns[None, :], mask, bias_row, FARTHEST, BIAS)
                if SOFTCAP == 0:
                    initial = added * (LOG2_E / factor)
            scores = tl.dot(q, k.to(q.dtype), initial, input_precision="ieee")
            if SOFTCAP != 0:
                scores = capped(scores * factor, SOFTCAP)
                if BIAS != 0:
                    scores += added * LOG2_E
                factor = 1.0
            if part != 1:
                visible = seen[None, :]
                if CAUSAL:
                    visible = visible & (columns[None, :] <= positions[:, None])
                if WINDOW != 0:
                    visible = visible & (columns[None, :] >= first_in_window(positions, WINDOW)[:, None])
                    if not CAUSAL:
                        visible = visible & (columns[None, :] <= positions[:, None] + AFTER)
                scores = tl.where(visible, scores, float("-inf"))
            higher = tl.maximum(top, tl.max(scores, 1) * factor)
            base = higher
            if BIAS != 0 or WINDOW != 0:
                base = tl.where(higher == float("-inf"), 0.0, higher)  # if every key so far is masked
            weights = tl.exp2(scores * factor - base[:, None])
            shrink = tl.exp2(top - base)
            total = total * shrink + tl.sum(weights, 1)
            sums = tl.dot(weights.to(q.dtype), v.to(q.dtype), sums * shrink[:, None], input_precision="ieee")
            top = higher
    tl.store(
        out + rows[:, None] * out_row + head * out_head + dims[None, :],
        (sums / tl.where(total == 0.0, 1.0, total)[:, None]).to(out.dtype.element_ty),
        mask=real[:, None] & whole[None, :],
    )
