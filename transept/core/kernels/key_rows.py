"""What attention of few queries does with keys and values, two at a time, of all heads.

The first of two is of the first half of those that the queries look at, the other of the second: memory that is read at
two places is read faster. Where a head's numbers are whole vectors, and not too many, the loops are written out in
vector instructions; elsewhere they are made of `vectors`. Arrays are flat.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from transept.core.kernels.launch import kernel
from transept.core.kernels.tiles import (
    FLOAT,
    INT,
    LANES,
    VECTOR,
    WIDE,
    address_of,
    choose,
    load,
    loop,
    multiply_add,
    prefetch,
    spread,
    store,
)
from transept.core.kernels.vectors import Floats, Stored, add_times, dot, widened

MOST_VECTORS = 8  # of a head
AHEAD = 2048  # bytes that are asked for before they are needed


class Sizes(NamedTuple):
    """queries, heads of each, how many of these have a key in common, numbers of a head."""

    queries: int
    heads: int
    shared: int
    dim: int


def _loops(
    builder: Any, places: Any, half: Any, sizes: list[Any], act: Callable[[Any, Any, list[Any], int], None]
) -> None:
    """Call act in loops over the first half of places, the queries and their heads.

    It is given the place's number, that of the head of all queries, where the head's numbers of this place and that of
    the other half begin, and how many vectors they are.
    """
    queries, heads, shared, dim = sizes

    def with_vectors(vectors: int) -> None:
        def at_pair(index: Any, _: list[Any]) -> list[Any]:
            pair = [builder.load(builder.gep(places, [each])) for each in (index, builder.add(index, half))]

            def at_query(query: Any, _: list[Any]) -> list[Any]:
                before = builder.mul(query, heads)

                def at_head(head: Any, values: list[Any]) -> list[Any]:
                    inside, left = values
                    act(index, builder.add(before, head), [builder.add(first, inside) for first in pair], vectors)
                    left = builder.sub(left, INT(1))
                    is_last = builder.icmp_signed("==", left, INT(0))
                    following = builder.select(is_last, builder.add(inside, dim), inside)
                    return [following, builder.select(is_last, shared, left)]

                loop(builder, heads, 1, [INT(0), shared], at_head)
                return []

            loop(builder, queries, 1, [], at_query)
            return []

        loop(builder, half, 1, [], at_pair)

    choose(builder, builder.sdiv(dim, INT(LANES)), with_vectors, MOST_VECTORS)


def _score_pairs(
    _: Any, query: Any, query_start: Any, keys: Any, places: Any, half: Any, sizes: Any, scale: Any, out: Any,
    stride: Any,
) -> Any:  # fmt: skip
    """What `score` does for whole vectors and the first keys, twice `half`, which is not 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        query = address_of(context, builder, signature, arguments, 0)
        keys, places, out = (_data(context, builder, signature, arguments, index) for index in (2, 3, 7))
        half, scale, stride = arguments[4], arguments[6], arguments[8]
        counts = [builder.extract_value(arguments[5], index) for index in range(4)]

        def act(index: Any, head: Any, firsts: list[Any], vectors: int) -> None:
            sums = [ir.Constant(VECTOR, None)] * 2
            of_head = builder.gep(query, [builder.mul(head, counts[3])])
            of_keys = [builder.gep(keys, [first]) for first in firsts]
            _ask_for(builder, of_keys, vectors)
            for vector in range(vectors):
                numbers = load(builder, builder.gep(of_head, [INT(vector * LANES)]), VECTOR)
                sums = [
                    multiply_add(builder, numbers, widened(builder, builder.gep(key, [INT(vector * LANES)])), total)
                    for key, total in zip(of_keys, sums, strict=True)
                ]
            place = builder.add(builder.mul(head, stride), index)
            for total, column in zip(_added_up(builder, *sums), (place, builder.add(place, half)), strict=True):
                builder.store(builder.fmul(total, scale), builder.gep(out, [column]))

        _loops(builder, places, half, counts, act)
        return context.get_dummy_value()

    number = types.int64
    return types.void(query, number, keys, places, number, sizes, types.float32, out, number), generate


def _add_pairs(
    _: Any, weights: Any, stride: Any, values: Any, before: Any, places: Any, half: Any, sizes: Any, out: Any
) -> Any:
    """What `add_values` does for whole vectors and the first values, twice `half`, which is not 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        weights, places, out = (_data(context, builder, signature, arguments, index) for index in (0, 4, 7))
        values = address_of(context, builder, signature, arguments, 2)
        stride, half = arguments[1], arguments[5]
        counts = [builder.extract_value(arguments[6], index) for index in range(4)]

        def act(index: Any, head: Any, firsts: list[Any], vectors: int) -> None:
            place = builder.add(builder.mul(head, stride), index)
            factors = [
                spread(builder, builder.load(builder.gep(weights, [each])))
                for each in (place, builder.add(place, half))
            ]
            of_values = [builder.gep(values, [first]) for first in firsts]
            _ask_for(builder, of_values, vectors)
            of_head = builder.gep(out, [builder.mul(head, counts[3])])
            for vector in range(vectors):
                address = builder.gep(of_head, [INT(vector * LANES)])
                total = load(builder, address, VECTOR)
                for factor, numbers in zip(factors, of_values, strict=True):
                    number = widened(builder, builder.gep(numbers, [INT(vector * LANES)]))
                    total = multiply_add(builder, factor, number, total)
                store(builder, total, address)

        _loops(builder, places, half, counts, act)
        return context.get_dummy_value()

    number = types.int64
    return types.void(weights, number, values, number, places, number, sizes, out), generate


def _ask_for(builder: Any, places: list[Any], vectors: int) -> None:
    """Ask for what is read next, where that gains; docs/performance.md says where."""
    if WIDE:
        for place in places:
            prefetch(builder, place, vectors * LANES * (4 if place.type.pointee == FLOAT else 2), AHEAD)


def _data(context: Any, builder: Any, signature: Any, arguments: Any, index: int) -> Any:
    """Where the array begins that is argument number `index`."""
    return context.make_array(signature.args[index])(context, builder, arguments[index]).data


def _added_up(builder: Any, one: Any, other: Any) -> list[Any]:
    """The sums of two vectors' numbers, which are found together."""

    def lanes(numbers: list[int]) -> Any:
        return ir.Constant(ir.VectorType(ir.IntType(32), LANES), numbers)

    width = LANES // 2
    lower = [*range(width), *range(LANES, LANES + width)]
    both = builder.fadd(
        builder.shuffle_vector(one, other, lanes(lower)),
        builder.shuffle_vector(one, other, lanes([lane + width for lane in lower])),
    )
    while width > 1:  # of each half, its upper half is added to its lower one
        width //= 2
        both = builder.fadd(both, builder.shuffle_vector(both, both, lanes([lane ^ width for lane in range(LANES)])))
    return [builder.extract_element(both, INT(lane)) for lane in (0, LANES // 2)]


_score_whole: Any = intrinsic(_score_pairs)
_add_whole: Any = intrinsic(_add_pairs)


@kernel()
def score(
    query: Floats, query_start: int, keys: Stored, places: npt.NDArray[np.int64], sizes: Sizes, scale: np.float32,
    out: Floats,
) -> None:  # fmt: skip
    """Write the scores of keys by queries to out, [queries, heads, keys].

    query: from query_start on [queries, heads, dim]. places: where in keys each of them begins, [heads / shared, dim].
    """
    queries, heads, shared, dim = sizes
    count = len(places)
    done = count // 2 * 2 if dim % LANES == 0 and dim <= MOST_VECTORS * LANES else 0
    if done:
        _score_whole(query, query_start, keys, places, done // 2, sizes, scale, out, count)
    for key in range(done, count):
        for head in range(queries * heads):
            place = places[key] + head % heads // shared * dim
            out[head * count + key] = dot(query, query_start + head * dim, keys, place, dim) * scale


@kernel()
def add_values(
    weights: Floats, values: Stored, before: int, places: npt.NDArray[np.int64], sizes: Sizes, out: Floats
) -> None:
    """Add values by their weights to what is in out, [queries, heads, dim].

    weights: [queries, heads, values]. places: where in values, `before` numbers further, each of them begins,
    [heads / shared, dim].
    """
    queries, heads, shared, dim = sizes
    count = len(places)
    done = count // 2 * 2 if dim % LANES == 0 and dim <= MOST_VECTORS * LANES else 0
    if done:
        _add_whole(weights, count, values, before, places, done // 2, sizes, out)
    for value in range(done, count):
        for head in range(queries * heads):
            place = before + places[value] + head % heads // shared * dim
            add_times(weights[head * count + value], values, place, out, head * dim, dim)
