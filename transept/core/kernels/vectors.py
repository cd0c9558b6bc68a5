"""Loops over a few dozen numbers, in vector instructions that are written out.

A compiler that does not know how many numbers there are spends more on finding out than on them. What a cache holds is
float32, or float16 as its bits in uint16, which is widened as it is read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from transept.core.kernels.launch import kernel
from transept.core.kernels.tiles import (
    FLOAT,
    HALVES,
    INT,
    LANES,
    VECTOR,
    address_of,
    load,
    loop,
    multiply_add,
    spread,
    store,
)

Floats = npt.NDArray[np.float32]
Stored = npt.NDArray[np.float32] | npt.NDArray[np.uint16]
LARGEST_HALF = 65504.0  # larger numbers become it


def _dot(_: Any, a: Any, a_start: Any, b: Any, b_start: Any, size: Any) -> Any:
    """What `dot` does for a multiple of LANES, not 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, b = (address_of(context, builder, signature, arguments, index) for index in (0, 2))

        def add(step: Any, sums: list[Any]) -> list[Any]:
            one = load(builder, builder.gep(a, [step]), VECTOR)
            return [multiply_add(builder, one, widened(builder, builder.gep(b, [step])), sums[0])]

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


def _highest(_: Any, x: Any, start: Any, size: Any) -> Any:
    """What `highest` does for a multiple of LANES, not 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x = address_of(context, builder, signature, arguments, 0)

        def compare(step: Any, tops: list[Any]) -> list[Any]:
            number = load(builder, builder.gep(x, [step]), VECTOR)
            return [builder.select(builder.fcmp_ordered(">", number, tops[0]), number, tops[0])]

        lowest = ir.Constant(VECTOR, [ir.Constant(FLOAT, float("-inf"))] * LANES)
        (tops,) = loop(builder, arguments[2], LANES, [lowest], compare)
        top = builder.extract_element(tops, INT(0))
        for lane in range(1, LANES):
            other = builder.extract_element(tops, INT(lane))
            top = builder.select(builder.fcmp_ordered(">", other, top), other, top)
        return top

    return types.float32(x, types.int64, types.int64), generate


def _add_times(_: Any, factor: Any, x: Any, x_start: Any, out: Any, out_start: Any, size: Any) -> Any:
    """What `add_times` does for a multiple of LANES, not 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, out = (address_of(context, builder, signature, arguments, index) for index in (1, 3))
        factor = spread(builder, arguments[0])

        def add(step: Any, _: list[Any]) -> list[Any]:
            place = builder.gep(out, [step])
            number = widened(builder, builder.gep(x, [step]))
            store(builder, multiply_add(builder, factor, number, load(builder, place, VECTOR)), place)
            return []

        loop(builder, arguments[5], LANES, [], add)
        return context.get_dummy_value()

    return types.void(types.float32, x, types.int64, out, types.int64, types.int64), generate


def _keep(_: Any, x: Any, x_start: Any, out: Any, out_start: Any, size: Any) -> Any:
    """What `keep` does for a multiple of LANES, not 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, out = (address_of(context, builder, signature, arguments, index) for index in (0, 2))

        def move(step: Any, _: list[Any]) -> list[Any]:
            number = load(builder, builder.gep(x, [step]), VECTOR)
            place = builder.gep(out, [step])
            store(builder, number if out.type.pointee == FLOAT else _narrowed(builder, number, HALVES), place)
            return []

        loop(builder, arguments[4], LANES, [], move)
        return context.get_dummy_value()

    return types.void(x, types.int64, out, types.int64, types.int64), generate


def _widened_one(_: Any, x: Any, index: Any) -> Any:
    """Inside a kernel: a number of a flat array, as float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = builder.load(address_of(context, builder, signature, arguments, 0))
        return number if number.type == FLOAT else builder.fpext(builder.bitcast(number, ir.HalfType()), FLOAT)

    return types.float32(x, types.int64), generate


def _keep_one(_: Any, number: Any, out: Any, index: Any) -> Any:
    """Inside a kernel: write a float32 to a flat array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place, number = address_of(context, builder, signature, arguments, 1), arguments[0]
        if place.type.pointee != FLOAT:
            number = builder.bitcast(_narrowed(builder, number, ir.HalfType()), place.type.pointee)
        builder.store(number, place)
        return context.get_dummy_value()

    return types.void(types.float32, out, types.int64), generate


def widened(builder: Any, address: Any) -> Any:
    """LANES numbers from an address on, as float32."""
    if address.type.pointee == FLOAT:
        return load(builder, address, VECTOR)
    return builder.fpext(load(builder, address, HALVES), VECTOR)


def _narrowed(builder: Any, number: Any, target: Any) -> Any:
    """A number or a vector in float16; NaN stays what it is."""
    for limit, beyond in ((LARGEST_HALF, ">"), (-LARGEST_HALF, "<")):
        is_vector = isinstance(number.type, ir.VectorType)
        bound = ir.Constant(number.type, [limit] * LANES if is_vector else limit)
        number = builder.select(builder.fcmp_ordered(beyond, number, bound), bound, number)
    return builder.fptrunc(number, target)


_whole_dot: Any = intrinsic(_dot)
_whole_highest: Any = intrinsic(_highest)
_whole_add_times: Any = intrinsic(_add_times)
_whole_keep: Any = intrinsic(_keep)
_number: Any = intrinsic(_widened_one)
_put: Any = intrinsic(_keep_one)


@kernel()
def dot(a: Floats, a_start: int, b: Stored, b_start: int, size: int) -> np.float32:
    """The sum of products of `size` numbers from a_start and b_start on; flat."""
    whole = size // LANES * LANES
    total = _whole_dot(a, a_start, b, b_start, whole) if whole else np.float32(0)
    for i in range(whole, size):
        total += a[a_start + i] * _number(b, b_start + i)
    return total


@kernel()
def highest(x: Floats, start: int, size: int) -> np.float32:
    """The highest of `size` numbers from start on, of those that are numbers; flat."""
    whole = size // LANES * LANES
    top = _whole_highest(x, start, whole) if whole else np.float32(-np.inf)
    for i in range(start + whole, start + size):
        top = max(top, x[i])
    return top


@kernel()
def add_times(factor: np.float32, x: Stored, x_start: int, out: Floats, out_start: int, size: int) -> None:
    """Add `factor` times `size` numbers of x to those of out; flat."""
    whole = size // LANES * LANES
    if whole:
        _whole_add_times(factor, x, x_start, out, out_start, whole)
    for i in range(whole, size):
        out[out_start + i] += factor * _number(x, x_start + i)


@kernel()
def keep(x: Floats, x_start: int, out: Stored, out_start: int, size: int) -> None:
    """Write `size` numbers of x to out, rounded where that is float16; flat."""
    whole = size // LANES * LANES
    if whole:
        _whole_keep(x, x_start, out, out_start, whole)
    for i in range(whole, size):
        _put(x[x_start + i], out, out_start + i)
