"""Parts of a product of rows of int16 with rows of int8 or int16, whose sums are integers and so always the same.

Called by `transept.core.kernels.int8_product` and `int16_attention`. Two products of 16 bits each are added in one
instruction (pmaddwd, or with the sum so far vpdpwssd); what is summed is made a float once, when it is stored.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from transept.core.kernels.tiles import (
    BESIDE,
    COLUMNS,
    FEW,
    INT,
    LANES,
    ROWS,
    VECTOR,
    address_of,
    choose,
    down_rows,
    load,
    loop,
    prefetch,
    spread,
    store,
)

BYTE, SHORT, WORD = ir.IntType(8), ir.IntType(16), ir.IntType(32)
BYTES, SHORTS = ir.VectorType(BYTE, 2 * LANES), ir.VectorType(SHORT, 2 * LANES)
SUMS, PRODUCTS = ir.VectorType(WORD, LANES), ir.VectorType(WORD, 2 * LANES)


def _tile_of(panels: int) -> Any:
    """A tile, or so many beside each other."""

    def tile(
        _: Any, num_rows: Any, a: Any, a_start: Any, depth: Any, b: Any, b_start: Any, x_scales: Any, row: Any,
        w_scales: Any, column: Any, out: Any, out_start: Any, stride: Any,
    ) -> Any:  # fmt: skip
        """Inside a kernel: ``out = (a @ b.T) * x_scales * w_scales`` for one tile. All arrays are flat.

        a: int16, from a_start num_rows rows of depth numbers, one after the other; num_rows is 1 to ROWS, depth is even
        and not 0. b: int8 or int16, from b_start depth / 2 times COLUMNS pairs of numbers, which are next to each other
        in a row of b.T. x_scales: float32, from row on; w_scales: from column on. out: float32, from out_start num_rows
        rows of COLUMNS numbers, stride apart, which are overwritten. With two panels num_rows is 1 to BESIDE, the
        second follows the first in b, and its scales and outputs are beside the first's.
        """
        number = types.int64

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            num_rows, depth, stride = arguments[0], arguments[3], arguments[12]
            a, b, x_scales, w_scales, out = (
                address_of(context, builder, signature, arguments, index) for index in (1, 4, 6, 8, 10)
            )
            vectors = 2 * panels  # of a row
            factors = [load(builder, builder.gep(w_scales, [INT(part * LANES)]), VECTOR) for part in range(vectors)]
            stored = BYTES if signature.args[4].dtype == types.int8 else SHORTS

            def sum_up(count: int) -> None:
                addresses, column_at = down_rows(builder, a, depth, count, 2)
                panel_size = builder.mul(depth, INT(COLUMNS))
                panels_of_b = [builder.gep(b, [builder.mul(panel_size, INT(panel))]) for panel in range(panels)]

                def add(step: Any, values: list[Any]) -> list[Any]:
                    sums, current = values[: vectors * count], values[vectors * count :]
                    parts = []
                    for panel in panels_of_b:
                        pairs = builder.gep(panel, [builder.mul(step, INT(COLUMNS))])
                        if count <= FEW:
                            prefetch(builder, pairs, 2 * COLUMNS)
                        parts += [load(builder, builder.gep(pairs, [INT(first)]), stored) for first in (0, 2 * LANES)]
                    if stored is BYTES:
                        parts = [builder.sext(part, SHORTS) for part in parts]
                    column, following = column_at(current)
                    added = []
                    for row, place in enumerate(column):
                        pairs = builder.bitcast(spread(builder, _pair(builder, place)), SHORTS)
                        so_far = sums[vectors * row : vectors * (row + 1)]
                        for part, total in zip(parts, so_far, strict=True):
                            added.append(builder.add(total, _pairwise(builder, pairs, part)))
                    return added + following

                nothing = ir.Constant(SUMS, None)
                sums = loop(builder, depth, 2, [nothing] * (vectors * count) + addresses, add)[: vectors * count]
                for index, total in enumerate(sums):
                    row, part = divmod(index, vectors)
                    scale = spread(builder, builder.load(builder.gep(x_scales, [INT(row)])))
                    result = builder.fmul(builder.fmul(builder.sitofp(total, VECTOR), scale), factors[part])
                    place = builder.gep(out, [builder.add(builder.mul(stride, INT(row)), INT(part * LANES))])
                    store(builder, result, place)

            choose(builder, num_rows, sum_up, ROWS if panels == 1 else BESIDE)
            return context.get_dummy_value()

        signature = types.void(
            number, a, number, number, b, number, x_scales, number, w_scales, number, out, number, number
        )
        return signature, generate

    return intrinsic(tile)


tile, tiles_beside = _tile_of(1), _tile_of(2)


def _pair(builder: Any, place: Any) -> Any:
    """Two int16, as one number of 32 bits."""
    return builder.load(builder.bitcast(place, WORD.as_pointer()), align=2)


def _pairwise(builder: Any, one: Any, other: Any) -> Any:
    """The sums of neighbouring products, which LLVM knows as one instruction."""
    products = builder.mul(builder.sext(one, PRODUCTS), builder.sext(other, PRODUCTS))
    lanes = ir.VectorType(WORD, LANES)
    even, odd = (
        builder.shuffle_vector(
            products, products, ir.Constant(lanes, [WORD(2 * lane + first) for lane in range(LANES)])
        )
        for first in (0, 1)
    )
    return builder.add(even, odd)
