"""Parts of kernels in vector instructions that are written out, where the compiler does not find them by itself.

`tile_6` and those with fewer rows are what products are made of: sums that stay in registers while a column times a row
is added to them, step by step. `highest` is the maximum of a row, which a compiler that minds NaNs takes number by
number.
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
VECTOR, HALVES = ir.VectorType(FLOAT, LANES), ir.VectorType(ir.HalfType(), LANES)


def _tile_of(num_rows: int) -> Any:
    def tile(
        _: Any, a: Any, a_start: Any, a_stride: Any, b: Any, b_start: Any, depth: Any, out: Any, out_start: Any,
        stride: Any, begins: Any,
    ) -> Any:  # fmt: skip
        """Inside a kernel: ``out = a @ b`` for one tile, or ``out += a @ b``. All arrays are flat.

        a: float32, from a_start num_rows rows of depth numbers, a_stride apart. b: float32, or float16 as its bits;
        from b_start depth rows of COLUMNS numbers, one after the other; depth > 0. out: float32, from out_start
        num_rows rows of COLUMNS numbers, stride apart. begins: 1 to overwrite out, 0 to add to it.

        A sum is over one product after the other, whatever the number of rows.
        """
        number = types.int64

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            _, _, a_stride, _, _, depth, _, _, out_stride, begins = arguments
            a, b, out = (address_of(context, builder, signature, arguments, index) for index in (0, 3, 6))
            multiply_add = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
                builder.module, ir.FunctionType(VECTOR, [VECTOR] * 3), f"llvm.fma.v{LANES}f32"
            )
            stored = HALVES if signature.args[3].dtype == types.uint16 else VECTOR
            rows = [builder.gep(a, [builder.mul(a_stride, INT(row))]) for row in range(num_rows)]
            places = [
                builder.gep(out, [builder.add(builder.mul(out_stride, INT(row)), INT(first))])
                for row in range(num_rows)
                for first in (0, LANES)
            ]

            def add(step: Any, sums: list[Any]) -> list[Any]:
                row_of_b = builder.gep(b, [builder.mul(step, INT(COLUMNS))])
                halves = [load(builder, builder.gep(row_of_b, [INT(first)]), stored) for first in (0, LANES)]
                if stored is HALVES:
                    halves = [builder.fpext(half, VECTOR) for half in halves]
                column = [spread(builder, builder.load(builder.gep(row, [step]))) for row in rows]
                products = [(number, half) for number in column for half in halves]
                return [builder.call(multiply_add, [*pair, total]) for pair, total in zip(products, sums, strict=True)]

            nothing = ir.Constant(VECTOR, None)
            sums = loop(builder, depth, 1, [nothing] * len(places), add)
            new = builder.icmp_signed("!=", begins, INT(0))
            for place, total in zip(places, sums, strict=True):
                before = builder.select(new, nothing, load(builder, place, VECTOR))
                builder.store(builder.fadd(before, total), builder.bitcast(place, VECTOR.as_pointer()), align=4)
            return context.get_dummy_value()

        return types.void(a, number, number, b, number, number, out, number, number, number), generate

    return intrinsic(tile)


def _highest(_: Any, values: Any, start: Any, count: Any) -> Any:
    """Inside a kernel: the highest of count numbers from start on.

    values: flat, float32. count: a multiple of COLUMNS, not 0.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        first = address_of(context, builder, signature, arguments, 0)

        def higher(one: Any, other: Any) -> Any:
            return builder.select(builder.fcmp_ordered(">", one, other), one, other)

        def advance(step: Any, tops: list[Any]) -> list[Any]:
            halves = [
                load(builder, builder.gep(first, [builder.add(step, INT(offset))]), VECTOR) for offset in (0, LANES)
            ]
            return [higher(half, top) for half, top in zip(halves, tops, strict=True)]

        lowest = ir.Constant(VECTOR, [ir.Constant(FLOAT, float("-inf"))] * LANES)
        tops = higher(*loop(builder, arguments[2], COLUMNS, [lowest, lowest], advance))
        top = builder.extract_element(tops, INT(0))
        for lane in range(1, LANES):
            top = higher(builder.extract_element(tops, INT(lane)), top)
        return top

    return types.float32(values, types.int64, types.int64), generate


tile_1, tile_2, tile_4, tile_6 = (_tile_of(num_rows) for num_rows in (1, 2, 4, ROWS))
highest: Any = intrinsic(_highest)


def address_of(context: Any, builder: Any, signature: Any, arguments: Any, index: int) -> Any:
    """Of the array that is argument number `index`, where the argument after it says that it begins."""
    data = context.make_array(signature.args[index])(context, builder, arguments[index]).data
    return builder.gep(data, [arguments[index + 1]])


def load(builder: Any, address: Any, vector: Any) -> Any:
    """A vector from wherever its numbers begin."""
    return builder.load(builder.bitcast(address, vector.as_pointer()), align=1)


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
