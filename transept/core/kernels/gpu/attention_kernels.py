"""Triton kernels of attention over flattened sequences, with keys in a row or in a paged cache.

Launched by `transept.core.kernels.gpu.attention`. Sums and the softmax are float32 whatever the inputs are. What
comes out of a sequence depends on it alone, but for the order of sums where many queries have longer pieces: tiles and
pieces begin at its own first query and key. A key whose bias is minus infinity has no weight; a query that sees none
gets zeros.

SOFTCAP: scaled scores become SOFTCAP · tanh(scores / SOFTCAP) before a bias is added; 0: they stay as they are. WINDOW:
of the keys that a causal query sees, its own the last of them, or how far away on either side those are that another
one sees; 0: any number.

All pointers but bias are to [rows, heads, dim] tensors whose last dimension is dense; strides are in elements. Keys and
values may be fp8. lengths holds the keys of each sequence, tables its cache blocks. The queries of a sequence are its
last positions.
"""

import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)  # exp(x) is exp2(x · LOG2_E), which is one instruction
LOWEST = tl.constexpr(-1e38)  # below every score, and finite: its difference to itself is a number

# What would be compiled anew for some of its values, in the midst of serving, and is as fast in general.
ANY = {
    "do_not_specialize": ["table_row", "num_pieces"],
    "do_not_specialize_on_alignment": ["pairs", "tiles", "query_start", "lengths", "tables"],
}


@triton.jit
def _slots(columns, seen, table, BLOCK_SIZE: tl.constexpr):
    """Where the keys of some columns lie in the cache, int64."""
    blocks = tl.load(table + columns // BLOCK_SIZE, mask=seen, other=0).to(tl.int64)
    return blocks * BLOCK_SIZE + columns % BLOCK_SIZE


@triton.jit
def _bias(bias, positions, columns, mask, bias_row, FARTHEST: tl.constexpr, BIAS: tl.constexpr):
    """The biases of keys at columns for queries at positions, which broadcast against each other.

    bias: of one head, by distance from -FARTHEST to FARTHEST, beyond which it stays the same, or by both positions.
    """
    if BIAS == 1:
        distance = tl.minimum(tl.maximum(columns - positions, -FARTHEST), FARTHEST)
        return tl.load(bias + FARTHEST + distance).to(tl.float32)  # in the table wherever the key is
    return tl.load(bias + positions * bias_row + columns, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _first_in_window(position, CAUSAL: tl.constexpr, WINDOW: tl.constexpr):
    """The first key that a query at a position sees, below 0 where its window begins before the sequence."""
    return position - WINDOW + 1 if CAUSAL else position - WINDOW


@triton.jit
def _capped(scores, SOFTCAP: tl.constexpr):
    """SOFTCAP · tanh(scores / SOFTCAP), of scores times LOG2_E, as is the result."""
    # tanh(x) = 1 - 2 / (1 + exp(2x)): at infinity as well
    cap = SOFTCAP * LOG2_E
    return cap - 2.0 * cap / (1.0 + tl.exp2(scores * (2.0 / SOFTCAP)))


@triton.jit
def _attend_keys(
    top,
    total,
    sums,
    q,
    keys,
    values,
    key,
    length,
    table,
    bias,
    positions,
    real,
    key_row,
    value_row,
    bias_row,
    scale,
    DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    KEYS: tl.constexpr,
    PAGED: tl.constexpr,
    CAUSAL: tl.constexpr,
    BIAS: tl.constexpr,
    FARTHEST: tl.constexpr,
    SOFTCAP: tl.constexpr,
    WINDOW: tl.constexpr,
    SOME_HIDDEN: tl.constexpr,
):
    """A tile's highest scores, sums of weights and weighted sums of values, with KEYS more keys in them.

    keys, values: of the head, and where keys lie in rows, of the sequence. SOME_HIDDEN: some of these keys are beyond
    the sequence, beyond a query, or outside of its window. scale: see attend_tiles, times LOG2_E.
    """
    columns = key + tl.arange(0, KEYS)
    seen = columns < length
    dims = tl.arange(0, PADDED_DIM)
    slots = columns
    if PAGED:
        slots = _slots(columns, seen, table, BLOCK_SIZE)
    k_at = keys + slots[None, :] * key_row + dims[:, None]
    v_at = values + slots[:, None] * value_row + dims[None, :]
    if SOME_HIDDEN or DIM != PADDED_DIM:
        whole = dims < DIM
        k = tl.load(k_at, mask=seen[None, :] & whole[:, None], other=0.0)
        v = tl.load(v_at, mask=seen[:, None] & whole[None, :], other=0.0)
    else:
        k = tl.load(k_at)
        v = tl.load(v_at)
    # The bias is what the product starts from: after it, Triton would compute the softmax in two layouts. With a soft
    # cap it has to come after.
    start = tl.zeros([q.shape[0], KEYS], tl.float32)
    added = start
    if BIAS != 0:
        mask = real[:, None] & seen[None, :]
        added = _bias(bias, positions[:, None], columns[None, :], mask, bias_row, FARTHEST, BIAS)
        if SOFTCAP == 0:
            start = added * (LOG2_E / scale)
    scores = tl.dot(q, k.to(q.dtype), start, input_precision="ieee")
    if SOFTCAP != 0:
        scores = _capped(scores * scale, SOFTCAP)
        if BIAS != 0:
            scores += added * LOG2_E
        scale = 1.0
    if SOME_HIDDEN:
        visible = seen[None, :]
        if CAUSAL:
            visible = visible & (columns[None, :] <= positions[:, None])
        if WINDOW != 0:
            visible = visible & (columns[None, :] >= _first_in_window(positions, CAUSAL, WINDOW)[:, None])
            if not CAUSAL:
                visible = visible & (columns[None, :] <= positions[:, None] + WINDOW)
        scores = tl.where(visible, scores, float("-inf"))
    higher = tl.maximum(top, tl.max(scores, 1) * scale)
    base = higher
    if BIAS != 0 or WINDOW != 0:
        base = tl.where(higher == float("-inf"), 0.0, higher)  # where every key so far is hidden
    weights = tl.exp2(scores * scale - base[:, None])
    shrink = tl.exp2(top - base)
    total = total * shrink + tl.sum(weights, 1)
    sums = tl.dot(weights.to(q.dtype), v.to(q.dtype), sums * shrink[:, None], input_precision="ieee")
    return higher, total, sums


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
    UPCAST: tl.constexpr,
):
    """Attention of QUERIES queries of one sequence and head over all its keys; the grid is (tiles, heads).

    tiles: int32 [tiles, 2], each with its sequence and its first query there. GROUP: query heads of a key head.
    STAGES: of loads on their way; with one, all keys are taken as those of which some are hidden. UPCAST: widen what is
    multiplied to float32 first.
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
    if not PAGED:  # keys in a row lie as their queries do
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
        start = tl.maximum(_first_in_window(position, CAUSAL, WINDOW), 0) // KEYS * KEYS
        from_all = tl.maximum(_first_in_window(position + QUERIES - 1, CAUSAL, WINDOW), 0)
        from_all = (from_all + KEYS - 1) // KEYS * KEYS if STAGES > 1 else start
        if not CAUSAL:
            seen_by_all = tl.minimum(length, position + WINDOW + 1)
            stop = tl.minimum(length, seen_by_all + QUERIES - 1)
    middle = tl.maximum(seen_by_all // KEYS * KEYS, from_all) if STAGES > 1 else from_all
    for part in tl.static_range(0 if WINDOW != 0 else 1, 3):
        first_key = start if part == 0 else from_all if part == 1 else middle
        last_key = tl.minimum(from_all, stop) if part == 0 else middle if part == 1 else stop
        for key in tl.range(first_key, last_key, KEYS, num_stages=STAGES if part == 1 else 1):
            top, total, sums = _attend_keys(
                top,
                total,
                sums,
                q,
                keys,
                values,
                key,
                length,
                table,
                own_bias,
                positions,
                real,
                key_row,
                value_row,
                bias_row,
                scale * LOG2_E,
                DIM,
                PADDED_DIM,
                BLOCK_SIZE,
                KEYS,
                PAGED,
                CAUSAL,
                BIAS,
                FARTHEST,
                SOFTCAP,
                WINDOW,
                part != 1,
            )
    tl.store(
        out + rows[:, None] * out_row + head * out_head + dims[None, :],
        (sums / tl.where(total == 0.0, 1.0, total)[:, None]).to(out.dtype.element_ty),
        mask=real[:, None] & whole[None, :],
    )


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
    KEYS lanes of a head has a softmax of its own over every KEYS-th key, so that threads wait for one another only when
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
            slots = _slots(columns, seen, tables + sequence * table_row, BLOCK_SIZE)[:, None, None]
            mask = seen[:, None, None] & whole[None, :, :]
            k = tl.load(keys + slots * key_row + k_at, mask=mask, other=0.0)
            v = tl.load(values + slots * value_row + v_at, mask=mask, other=0.0)
            scores = tl.sum(k.to(tl.float32) * q[None, :, :], 2)
            if SOFTCAP != 0:
                scores = _capped(scores, SOFTCAP)
            if BIAS != 0:
                own_bias = bias + heads[None, :] * bias_head
                added = _bias(own_bias, length - 1, columns[:, None], seen[:, None], bias_row, FARTHEST, BIAS)
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
    """One softmax from those of attend_pieces' pieces in the window; the grid is (queries, heads)."""
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
