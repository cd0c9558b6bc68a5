"""Two loops over a few dozen numbers, in vector instructions that are written out.

A compiler that does not know how many numbers there are spends more on finding out than on them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from transept.core.kernels.launch import kernel
from transept.core.kernels.tiles import INT, LANES, VECTOR, address_of, load, loop, multiply_add, spread, store

Floats = npt.NDArray[np.float32]


def _dot(_: Any, a: Any, a_start: Any, b: Any, b_start: Any, size: Any) -> Any:
    """What `dot` does for a multiple of LANES, not 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, b = (address_of(context, builder, signature, arguments, index) for index in (0, 2))

        def add(step: Any, sums: list[Any]) -> list[Any]:
            one, other = (load(builder, builder.gep(numbers, [step]), VECTOR) for numbers in (a, b))
            return [multiply_add(builder, one, other, sums[0])]

        (total,) = loop(builder, arguments[4], LANES, [ir.Constant(VECTOR, None)], add)
        width = LANES
        while width > 1:  # the upper half is added to the lower one
            width //= 2
            lower, upper = (
                ir.Constant(ir.VectorType(ir.IntType(32), width), [*range(first, first + width)])
                for first in (0, width)
            )
            total = builder.fadd(
                builder.shuffle_vector(total, total, lower), builder.shuffle_vector(total, total, upper)
            )
        return builder.extract_element(total, INT(0))

    return types.float32(a, types.int64, b, types.int64, types.int64), generate


def _add_times(_: Any, factor: Any, x: Any, x_start: Any, out: Any, out_start: Any, size: Any) -> Any:
    """What `add_times` does for a multiple of LANES, not 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, out = (address_of(context, builder, signature, arguments, index) for index in (1, 3))
        factor = spread(builder, arguments[0])

        def add(step: Any, _: list[Any]) -> list[Any]:
            place = builder.gep(out, [step])
            number = load(builder, builder.gep(x, [step]), VECTOR)
            store(builder, multiply_add(builder, factor, number, load(builder, place, VECTOR)), place)
            return []

        loop(builder, arguments[5], LANES, [], add)
        return context.get_dummy_value()

    return types.void(types.float32, x, types.int64, out, types.int64, types.int64), generate


_whole_dot: Any = intrinsic(_dot)
_whole_add_times: Any = intrinsic(_add_times)


@kernel()
def dot(a: Floats, a_start: int, b: Floats, b_start: int, size: int) -> np.float32:
    """The sum of products of `size` numbers from a_start and b_start on; flat, float32."""
    whole = size // LANES * LANES
    total = _whole_dot(a, a_start, b, b_start, whole) if whole else np.float32(0)
    for i in range(whole, size):
        total += a[a_start + i] * b[b_start + i]
    return total


@kernel()
def add_times(factor: np.float32, x: Floats, x_start: int, out: Floats, out_start: int, size: int) -> None:
    """Add `factor` times `size` numbers of x to those of out; flat, float32."""
    whole = size // LANES * LANES
    if whole:
        _whole_add_times(factor, x, x_start, out, out_start, whole)
    for i in range(whole, size):
        out[out_start + i] += factor * x[x_start + i]
