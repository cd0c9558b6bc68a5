"""Parts of kernels in vector instructions that are written out, where the compiler does not find them by itself.

`tile` is what products are made of: sums that stay in registers while a column times a row is added to them, step by
step; `turned_tile` reads those columns from memory as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from transept.core.kernels.processor import has

WIDE = has("avx512bw")
LANES = 16 if WIDE else 8  # floats of a vector
# Of a tile: two vectors of sums a row fill the registers of AVX2 or AVX-512, with what is multiplied beside them.
ROWS, COLUMNS = 12 if WIDE else 6, 2 * LANES
BESIDE = 6 if WIDE else 2  # rows, for which the sums of two tiles have room in registers
FEW = 8  # rows, for which reading b takes longer than multiplying
AHEAD = 8192  # bytes that are asked for before they are needed
CACHE_LINE = 64  # bytes

INT, FLOAT = ir.IntType(64), ir.FloatType()
VECTOR, HALVES = ir.VectorType(FLOAT, LANES), ir.VectorType(ir.HalfType(), LANES)


def _tile_of(columns_are: Callable[[Any, Any, Any, int], tuple[list[Any], Callable[..., Any]]], panels: int = 1) -> Any:
    """A tile that reads a as `columns_are` says, or so many beside each other."""

    def tile(
        _: Any, num_rows: Any, a: Any, a_start: Any, a_stride: Any, b: Any, b_start: Any, depth: Any, out: Any,
        out_start: Any, stride: Any, begins: Any,
    ) -> Any:  # fmt: skip
        """Inside a kernel: ``out = a @ b`` for one tile, or ``out += a @ b``. All arrays are flat.

        a: float32, from a_start num_rows rows of depth numbers, a_stride apart; num_rows is 1 to ROWS, depth > 0. For
        turned_tile it is a.T: depth rows of num_rows numbers. b: float32, or float16 as its bits; from b_start depth
        rows of COLUMNS numbers, one after the other. out: float32, from out_start num_rows rows of COLUMNS numbers,
        stride apart. begins: 1 to overwrite out, 0 to add to it. With two panels num_rows is 1 to BESIDE, the second
        begins a_stride rows after the first in b, and its outputs are beside the first's.

        A sum is over one product after the other, whatever the number of rows.
        """
        number = types.int64

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            num_rows, _, _, a_stride, _, _, depth, _, _, out_stride, begins = arguments
            a, b, out = (address_of(context, builder, signature, arguments, index) for index in (1, 4, 7))
            stored = HALVES if signature.args[4].dtype == types.uint16 else VECTOR
            nothing = ir.Constant(VECTOR, None)
            new = builder.icmp_signed("!=", begins, INT(0))

            def sum_up(count: int) -> None:
                addresses, column_at = columns_are(builder, a, a_stride, count)
                panel_size = builder.mul(a_stride, INT(COLUMNS))
                panels_of_b = [builder.gep(b, [builder.mul(panel_size, INT(panel))]) for panel in range(panels)]
                vectors = 2 * panels  # of a row

                def add(step: Any, values: list[Any]) -> list[Any]:
                    sums, current = values[: vectors * count], values[vectors * count :]
                    parts = []
                    for panel in panels_of_b:
                        row_of_b = builder.gep(panel, [builder.mul(step, INT(COLUMNS))])
                        if count <= FEW:
                            prefetch(builder, row_of_b, 2 * LANES * (2 if stored is HALVES else 4))
                        parts += [load(builder, builder.gep(row_of_b, [INT(first)]), stored) for first in (0, LANES)]
                    if stored is HALVES:
                        parts = [builder.fpext(part, VECTOR) for part in parts]
                    column, following = column_at(current)
                    added = []
                    for row, number in enumerate(column):
                        factor = spread(builder, builder.load(number))
                        so_far = sums[vectors * row : vectors * (row + 1)]
                        added += [multiply_add(builder, factor, *each) for each in zip(parts, so_far, strict=True)]
                    return added + following

                sums = loop(builder, depth, 1, [nothing] * (vectors * count) + addresses, add)[: vectors * count]
                for index, total in enumerate(sums):
                    row, part = divmod(index, vectors)
                    place = builder.gep(out, [builder.add(builder.mul(out_stride, INT(row)), INT(part * LANES))])
                    before = builder.select(new, nothing, load(builder, place, VECTOR))
                    store(builder, builder.fadd(before, total), place)

            choose(builder, num_rows, sum_up, ROWS if panels == 1 else BESIDE)
            return context.get_dummy_value()

        return types.void(number, a, number, number, b, number, number, out, number, number, number), generate

    return intrinsic(tile)


def down_rows(builder: Any, a: Any, stride: Any, count: int, step: int = 1) -> tuple[list[Any], Callable[..., Any]]:
    """Columns of rows that lie apart, `step` numbers after each other."""
    # The compiler is not to know how the rows' distances follow from each other: it would add them up in the loop.
    addresses = [builder.gep(a, [_opaque(builder, builder.mul(stride, INT(row)))]) for row in range(count)]

    def column_at(current: list[Any]) -> tuple[list[Any], list[Any]]:
        return current, [builder.gep(address, [INT(step)]) for address in current]

    return addresses, column_at


def _opaque(builder: Any, number: Any) -> Any:
    """The same number, of which the compiler knows nothing."""
    function = ir.FunctionType(number.type, [number.type])
    return builder.call(ir.InlineAsm(function, "", "=r,0", side_effect=False), [number])


def _along_columns(builder: Any, a: Any, stride: Any, count: int) -> tuple[list[Any], Callable[..., Any]]:
    """Columns whose numbers are next to each other."""

    def column_at(current: list[Any]) -> tuple[list[Any], list[Any]]:
        column = [builder.gep(current[0], [INT(row)]) for row in range(count)]
        return column, [builder.gep(current[0], [stride])]

    return [a], column_at


tile, turned_tile = (_tile_of(columns) for columns in (down_rows, _along_columns))
tiles_beside = _tile_of(down_rows, panels=2)


def multiply_add(builder: Any, one: Any, other: Any, total: Any) -> Any:
    """``one * other + total`` of vectors, rounded once."""
    function = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
        builder.module, ir.FunctionType(VECTOR, [VECTOR] * 3), f"llvm.fma.v{LANES}f32"
    )
    return builder.call(function, [one, other, total])


def choose(builder: Any, num_rows: Any, generate: Callable[[int], None], most: int = ROWS) -> None:
    """A way of its own for every number of rows from 1 to `most`."""
    after = builder.append_basic_block()
    choice = builder.switch(num_rows, after)
    for count in range(1, most + 1):
        block = builder.append_basic_block()
        choice.add_case(INT(count), block)
        builder.position_at_end(block)
        generate(count)
        builder.branch(after)
    builder.position_at_end(after)


def address_of(context: Any, builder: Any, signature: Any, arguments: Any, index: int) -> Any:
    """Of the array that is argument number `index`, where the argument after it says that it begins."""
    data = context.make_array(signature.args[index])(context, builder, arguments[index]).data
    return builder.gep(data, [arguments[index + 1]])


def store(builder: Any, vector: Any, address: Any) -> None:
    """A vector to wherever its numbers go."""
    builder.store(vector, builder.bitcast(address, vector.type.as_pointer()), align=4)


def prefetch(builder: Any, address: Any, num_bytes: int, ahead: int = AHEAD) -> None:
    """Ask for what lies `ahead` of so many bytes, which a loop reads next; it may lie outside the array."""
    byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
    function = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
        builder.module, ir.FunctionType(ir.VoidType(), [byte, word, word, word]), "llvm.prefetch.p0"
    )
    first = builder.bitcast(address, byte)
    for line in range(0, num_bytes, CACHE_LINE):
        place = builder.gep(first, [INT(ahead + line)])
        builder.call(function, [place, word(0), word(3), word(1)])  # for reading, to every cache, data


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
    end = builder.block  # another one than the body where that has loops
    for phi, first, following in zip((index, *current), (INT(0), *values), new, strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(following, end)
    builder.cbranch(builder.icmp_signed("<", new[0], stop), body, after)
    builder.position_at_end(after)
    return new[1:]
