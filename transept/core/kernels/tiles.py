"""Parts of kernels in vector instructions that are written out, where the compiler does not find them by itself.

`tile` is what large products are made of: sums that stay in registers while a column times a row is added to them, step
by step. `highest` is the maximum of a row, which a compiler that minds NaNs takes number by number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 8  # floats of a vector
ROWS, COLUMNS = 6, 2 * LANES  # of a tile: twelve vectors of sums, and what is multiplied, fill the registers of AVX2

INT, FLOAT = ir.IntType(64), ir.FloatType()
VECTOR = ir.VectorType(FLOAT, LANES)


def _tile(
    _: Any, a: Any, a_start: Any, a_stride: Any, b: Any, b_start: Any, depth: Any, out: Any, out_start: Any, stride: Any
) -> Any:
    """Inside a kernel: ``out = a @ b`` for one tile. All arrays are flat, float32.

    a: from a_start ROWS rows of depth numbers, a_stride apart. b: from b_start depth rows of COLUMNS numbers, one after
    the other; depth > 0. out: from out_start ROWS rows of COLUMNS numbers, stride apart, which are overwritten.
    """
    number = types.int64

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, _, a_stride, _, _, depth, _, _, out_stride = arguments
        a, b, out = (address_of(context, builder, signature, arguments, index) for index in (0, 3, 6))
        multiply_add = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
            builder.module, ir.FunctionType(VECTOR, [VECTOR] * 3), f"llvm.fmuladd.v{LANES}f32"
        )
        rows = [builder.gep(a, [builder.mul(a_stride, INT(row))]) for row in range(ROWS)]

        def add(step: Any, sums: list[Any]) -> list[Any]:
            row_of_b = builder.gep(b, [builder.mul(step, INT(COLUMNS))])
            halves = [_load(builder, row_of_b, INT(first)) for first in (0, LANES)]
            column = [spread(builder, builder.load(builder.gep(row, [step]))) for row in rows]
            products = [(number, half) for number in column for half in halves]
            return [builder.call(multiply_add, [*pair, total]) for pair, total in zip(products, sums, strict=True)]

        sums = loop(builder, depth, 1, [ir.Constant(VECTOR, None)] * (2 * ROWS), add)
        for index, total in enumerate(sums):
            place = builder.add(builder.mul(out_stride, INT(index // 2)), INT(index % 2 * LANES))
            builder.store(total, builder.bitcast(builder.gep(out, [place]), VECTOR.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(a, number, number, b, number, number, out, number, number), generate


def _highest(_: Any, values: Any, start: Any, count: Any) -> Any:
    """Inside a kernel: the highest of count numbers from start on.

    values: flat, float32. count: a multiple of COLUMNS, not 0.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first = address_of(context, builder, signature, arguments, 0)

        def higher(one: Any, other: Any) -> Any:
            return builder.select(builder.fcmp_ordered(">", one, other), one, other)

        def advance(step: Any, tops: list[Any]) -> list[Any]:
            halves = [_load(builder, first, builder.add(step, INT(offset))) for offset in (0, LANES)]
            return [higher(half, top) for half, top in zip(halves, tops, strict=True)]

        lowest = ir.Constant(VECTOR, [ir.Constant(FLOAT, float("-inf"))] * LANES)
        tops = higher(*loop(builder, arguments[2], COLUMNS, [lowest, lowest], advance))
        top = builder.extract_element(tops, INT(0))
        for lane in range(1, LANES):
            top = higher(builder.extract_element(tops, INT(lane)), top)
        return top

    return types.float32(values, types.int64, types.int64), generate


tile: Any = intrinsic(_tile)
highest: Any = intrinsic(_highest)


def address_of(context: Any, builder: Any, signature: Any, arguments: Any, index: int) -> Any:
    """Of the array that is argument number `index`, where the argument after it says that it begins."""
    data = context.make_array(signature.args[index])(context, builder, arguments[index]).data
    return builder.gep(data, [arguments[index + 1]])


def _load(builder: Any, address: Any, offset: Any) -> Any:
    return builder.load(builder.bitcast(builder.gep(address, [offset]), VECTOR.as_pointer()), align=4)


def spread(builder: Any, number: Any) -> Any:
    """A vector of one number."""
    nothing = ir.Constant(ir.VectorType(number.type, LANES), ir.Undefined)
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), None)
    return builder.shuffle_vector(builder.insert_element(nothing, number, INT(0)), nothing, zeros)


def loop(
    builder: Any, stop: Any, step: int, values: list[Any], advance: Callable[[Any, list[Any]], list[Any]]
) -> list[Any]:
    """What ``for index in range(0, stop, step): values = advance(index, values)`` leaves in values; stop > 0."""
    before, body, after = builder.block, builder.append_basic_block(), builder.append_basic_block()
    builder.branch(body)
    builder.position_at_end(body)
    index, *current = [builder.phi(value.type) for value in (INT(0), *values)]
    new = [builder.add(index, INT(step)), *advance(index, current)]
    for phi, first, following in zip((index, *current), (INT(0), *values), new, strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(following, body)
    builder.cbranch(builder.icmp_signed("<", new[0], stop), body, after)
    builder.position_at_end(after)
    return new[1:]
