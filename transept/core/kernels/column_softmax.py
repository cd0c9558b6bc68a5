"""The steps of a softmax down the columns of a matrix, in vector instructions that are written out.

For kernels that put a product with `tiles` before and another after them. All arrays are flat and float32; `depth` rows
of COLUMNS numbers begin at `start`; depth > 0. A column in which a number is NaN becomes NaN. Minus infinity weighs 0,
and so does a column of nothing else.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from transept.core.kernels.launch import kernel
from transept.core.kernels.pointwise import TO_INTEGER
from transept.core.kernels.tiles import (
    COLUMNS,
    FLOAT,
    INT,
    LANES,
    VECTOR,
    address_of,
    load,
    loop,
    multiply_add,
    store,
)

Floats = npt.NDArray[np.float32]

LOWEST = -125.0  # powers of 2 below are as this one
# 2 to the x for x from -0.5 to 0.5 (Moshier's Cephes library, exp2f), the highest power first.
EXP2 = (
    1.535336188319500e-4, 1.339887440266574e-3, 9.618437357674640e-3, 5.550332471162809e-2, 2.402264791363012e-1,
    6.931472028550421e-1, 1.0,
)  # fmt: skip
WORDS = ir.VectorType(ir.IntType(32), LANES)


def _highest(_: Any, values: Any, start: Any, depth: Any, tops: Any) -> Any:
    """Inside a kernel: write the highest number of each column to tops."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first = address_of(context, builder, signature, arguments, 0)
        tops = context.make_array(signature.args[3])(context, builder, arguments[3]).data

        def advance(step: Any, highest: list[Any]) -> list[Any]:
            row = builder.gep(first, [builder.mul(step, INT(COLUMNS))])
            numbers = [load(builder, builder.gep(row, [INT(offset)]), VECTOR) for offset in (0, LANES)]
            return [
                builder.select(builder.fcmp_ordered(">", number, top), number, top)
                for number, top in zip(numbers, highest, strict=True)
            ]

        for offset, top in zip(
            (0, LANES), loop(builder, arguments[2], 1, [_all(float("-inf"))] * 2, advance), strict=True
        ):
            store(builder, top, builder.gep(tops, [INT(offset)]))
        return context.get_dummy_value()

    return types.void(values, types.int64, types.int64, tops), generate


def _weigh(_: Any, values: Any, start: Any, depth: Any, tops: Any, totals: Any) -> Any:
    """What `weigh` does."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first = address_of(context, builder, signature, arguments, 0)
        tops, totals = (
            context.make_array(signature.args[index])(context, builder, arguments[index]).data for index in (3, 4)
        )
        top = [load(builder, builder.gep(tops, [INT(offset)]), VECTOR) for offset in (0, LANES)]
        hidden, none = _all(float("-inf")), _all(0.0)
        base = [builder.select(builder.fcmp_ordered("==", high, hidden), none, high) for high in top]
        total = [load(builder, builder.gep(totals, [INT(offset)]), VECTOR) for offset in (0, LANES)]

        def advance(step: Any, sums: list[Any]) -> list[Any]:
            row = builder.gep(first, [builder.mul(step, INT(COLUMNS))])
            places = [builder.gep(row, [INT(offset)]) for offset in (0, LANES)]
            numbers = [load(builder, place, VECTOR) for place in places]
            weights = [
                builder.select(
                    builder.fcmp_ordered("==", number, hidden), none, _exp2(builder, builder.fsub(number, subtracted))
                )
                for number, subtracted in zip(numbers, base, strict=True)
            ]
            for place, weight in zip(places, weights, strict=True):
                store(builder, weight, place)
            return [builder.fadd(weight, so_far) for weight, so_far in zip(weights, sums, strict=True)]

        for offset, new in zip((0, LANES), loop(builder, arguments[2], 1, total, advance), strict=True):
            store(builder, new, builder.gep(totals, [INT(offset)]))
        return context.get_dummy_value()

    return types.void(values, types.int64, types.int64, tops, totals), generate


def _round_pairs(_: Any, values: Any, start: Any, depth: Any, factors: Any, totals: Any, out: Any) -> Any:
    """What `round_pairs` does."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first = address_of(context, builder, signature, arguments, 0)
        factors, totals, out = (
            context.make_array(signature.args[index])(context, builder, arguments[index]).data for index in (3, 4, 5)
        )
        factor = [load(builder, builder.gep(factors, [INT(offset)]), VECTOR) for offset in (0, LANES)]
        total = [load(builder, builder.gep(totals, [INT(offset)]), VECTOR) for offset in (0, LANES)]
        low, half = ir.Constant(WORDS, [0xFFFF] * LANES), ir.Constant(WORDS, [16] * LANES)

        def advance(step: Any, sums: list[Any]) -> list[Any]:
            row = builder.gep(first, [builder.mul(step, INT(COLUMNS))])
            pairs = builder.gep(out, [builder.mul(step, INT(COLUMNS))])
            new = []
            for offset, times, so_far in zip((0, LANES), factor, sums, strict=True):
                numbers = [
                    load(builder, builder.gep(row, [INT(place)]), VECTOR) for place in (offset, offset + COLUMNS)
                ]
                shifted = [multiply_add(builder, number, times, _all(float(TO_INTEGER))) for number in numbers]
                one, other = (builder.fsub(each, _all(float(TO_INTEGER))) for each in shifted)
                new.append(builder.fadd(so_far, builder.fadd(one, other)))
                one, other = (builder.bitcast(each, WORDS) for each in shifted)
                pair = builder.or_(builder.and_(one, low), builder.shl(other, half))
                store(builder, pair, builder.gep(pairs, [INT(2 * offset)]))
            return new

        for offset, new in zip((0, LANES), loop(builder, arguments[2], 2, total, advance), strict=True):
            store(builder, new, builder.gep(totals, [INT(offset)]))
        return context.get_dummy_value()

    return types.void(values, types.int64, types.int64, factors, totals, out), generate


def _exp2(builder: Any, x: Any) -> Any:
    """2 to the x, for x up to 127."""
    x = builder.select(builder.fcmp_ordered("<", x, _all(LOWEST)), _all(LOWEST), x)
    shifted = builder.fadd(x, _all(float(TO_INTEGER)))
    rest = builder.fsub(x, builder.fsub(shifted, _all(float(TO_INTEGER))))
    value = _all(EXP2[0])
    for factor in EXP2[1:]:
        value = multiply_add(builder, value, rest, _all(factor))
    exponent = builder.shl(builder.bitcast(shifted, WORDS), ir.Constant(WORDS, [23] * LANES))
    return builder.bitcast(builder.add(builder.bitcast(value, WORDS), exponent), VECTOR)


def _all(number: float) -> Any:
    """A vector of one number."""
    return ir.Constant(VECTOR, [ir.Constant(FLOAT, number)] * LANES)


highest: Any = intrinsic(_highest)
_raise: Any = intrinsic(_weigh)
_round: Any = intrinsic(_round_pairs)


@kernel(exact=True)  # what is rounded by adding and subtracting a number must stay so
def weigh(values: Floats, start: int, depth: int, tops: Floats, totals: Floats) -> None:
    """Raise 2 to each number less its column's top, in place, and add the results to totals.

    tops, totals: [COLUMNS].
    """
    _raise(values, start, depth, tops, totals)


@kernel(exact=True)
def round_pairs(
    values: Floats, start: int, depth: int, factors: Floats, totals: Floats, out: npt.NDArray[np.int16]
) -> None:
    """Write each number times its column's factor, rounded to int16, to out, and add what is written to totals.

    depth is even. factors, totals: [COLUMNS]. out: flat, [depth / 2, COLUMNS, 2], so that two rows' numbers are pairs.
    """
    _round(values, start, depth, factors, totals, out)
