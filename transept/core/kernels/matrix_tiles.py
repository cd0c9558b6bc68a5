"""Products of tiles by AMX, the matrix instructions of newer Intel processors: 16 rows by 16 outputs at a time.

`multiply_block` sums bfloat16 in float32. A float32 is the sum of three bfloat16 and a float16 of two, each of which
has the next 8 bits; their product is that of each with each, but for the last with the last, too small to count.
`multiply_integers` sums int8 in int32. A number of 16 bits is two of 8, an upper with a sign and a lower without.
A thread says that it uses tiles, `begin`, before its first block, and `end` after the last.
"""

from __future__ import annotations

import ctypes
import platform
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from transept.core.kernels.processor import has
from transept.core.kernels.tiles import HALVES, INT, LANES, VECTOR, address_of, load, loop, spread, store

SIDE = 16  # rows of a tile, and its outputs
DEPTH = 32  # numbers of a row in a tile
TILE = SIDE * DEPTH  # numbers
BLOCK = 2 * SIDE  # rows of a block, and its outputs: four tiles of sums
PARTS, HALF_PARTS = 3, 2  # bfloat16 of a float32, and of a float16
BYTES_DEEP = 64  # the same as DEPTH for int8
TILE_BYTES = SIDE * BYTES_DEEP

_ROW_BYTES = 64
_SUMS, _A, _B = (0, 1, 2, 3), (4, 5), (6, 7)  # which tile registers hold what
_BYTE, _WORDS = ir.IntType(8), ir.VectorType(ir.IntType(32), LANES)
_UPPER, _SHIFT = (ir.Constant(_WORDS, [value] * LANES) for value in (0xFFFF0000, 16))


def available() -> bool:
    """Whether this processor has AMX and the system lets this process use it."""
    needed = ("amx-tile", "amx-bf16", "amx-int8", "avx512bw")
    if platform.system() != "Linux" or not all(has(feature) for feature in needed):
        return False
    arch_prctl, request_permission, tile_data = 158, 0x1023, 18
    return ctypes.CDLL(None).syscall(arch_prctl, request_permission, tile_data) == 0


def _call(builder: Any, name: str, *arguments: Any) -> None:
    function = cgutils.get_or_insert_function(  # type: ignore[no-untyped-call]
        builder.module, ir.FunctionType(ir.VoidType(), [each.type for each in arguments]), f"llvm.x86.{name}"
    )
    builder.call(function, arguments)


def _move_tile(builder: Any, instruction: str, register: int, place: Any, stride: Any) -> None:
    """Load or store a tile whose rows lie so many bytes apart."""
    _call(builder, instruction, _BYTE(register), builder.bitcast(place, _BYTE.as_pointer()), stride)


def _begin(_: Any) -> Any:
    """Inside a kernel: let this thread use eight tiles of 16 rows of 64 bytes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        # Palette 1; from byte 16 on the bytes of each tile's rows, in 16 bits, from byte 48 on how many rows it has.
        numbers = [1, *[0] * 15, *[_ROW_BYTES, 0] * 8, *[0] * 16, *[SIDE] * 8, *[0] * 8]
        settings = ir.Constant(ir.ArrayType(_BYTE, len(numbers)), bytearray(numbers))
        place = cgutils.alloca_once_value(builder, settings)  # type: ignore[no-untyped-call]
        _call(builder, "ldtilecfg", builder.bitcast(place, _BYTE.as_pointer()))
        return context.get_dummy_value()

    return types.void(), generate


def _end(_: Any) -> Any:
    """Inside a kernel: give the tiles back."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _call(builder, "tilerelease")
        return context.get_dummy_value()

    return types.void(), generate


def _multiply_block(
    _: Any, a: Any, a_start: Any, a_stride: Any, b: Any, b_start: Any, steps: Any, bias: Any,
    bias_start: Any, out: Any, out_start: Any, stride: Any,
) -> Any:  # fmt: skip
    """Inside a kernel: ``out = a @ b + bias`` for 32 rows and 32 outputs. All arrays are flat.

    a: as `split_row` leaves it, the second 16 rows a_stride numbers after
    the first. b: as `split_panel` leaves it. steps: of DEPTH numbers. bias: float32, 32 from bias_start on. out:
    float32, 32 rows of 32 numbers, stride apart.
    """
    number = types.int64

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, b, bias, out = (address_of(context, builder, signature, arguments, index) for index in (0, 3, 6, 8))
        a_stride, steps, stride = arguments[2], arguments[5], arguments[10]

        def take_a(tiles: Any, part: int) -> None:
            for index, register in enumerate(_A):
                place = builder.gep(tiles, [builder.add(builder.mul(a_stride, INT(index)), INT(part * TILE))])
                _move_tile(builder, "tileloadd64", register, place, INT(_ROW_BYTES))

        def take_b(tiles: Any, part: int) -> None:
            for index, register in enumerate(_B):
                place = builder.gep(tiles, [INT((2 * part + index) * TILE)])
                _move_tile(builder, "tileloadd64", register, place, INT(_ROW_BYTES))

        def multiply() -> None:
            for register in _SUMS:
                _call(builder, "tdpbf16ps", _BYTE(register), _BYTE(_A[register // 2]), _BYTE(_B[register % 2]))

        def step(index: Any, _: list[Any]) -> list[Any]:
            of_a = builder.gep(a, [builder.mul(index, INT(PARTS * TILE))])
            of_b = builder.gep(b, [builder.mul(index, INT(2 * HALF_PARTS * TILE))])
            take_b(of_b, 0)
            for part in (2, 1, 0):
                take_a(of_a, part)
                multiply()
            take_b(of_b, 1)
            multiply()
            take_a(of_a, 1)
            multiply()
            return []

        for register in _SUMS:
            column = builder.gep(bias, [INT(register % 2 * SIDE)])
            _move_tile(builder, "tileloadd64", register, column, INT(0))  # for every row the same
        loop(builder, steps, 1, [], step)
        for register in _SUMS:
            row, column = register // 2 * SIDE, register % 2 * SIDE
            place = builder.gep(out, [builder.add(builder.mul(stride, INT(row)), INT(column))])
            _move_tile(builder, "tilestored64", register, place, builder.mul(stride, INT(4)))
        return context.get_dummy_value()

    return types.void(a, number, number, b, number, number, bias, number, out, number, number), generate


def _multiply_integers(
    _: Any, a: Any, a_start: Any, a_stride: Any, b: Any, b_start: Any, steps: Any, out: Any, out_start: Any
) -> Any:
    """Inside a kernel: the sums of upper halves, then those of lower ones, for 32 rows and 32 outputs. All are flat.

    a: as `halve_row` leaves it, the second 16 rows a_stride numbers after the first. b: as `regroup_panel` leaves it.
    steps: of BYTES_DEEP numbers. out: int32, twice 32 rows of 32 numbers.
    """
    number = types.int64

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        a, b, out = (address_of(context, builder, signature, arguments, index) for index in (0, 3, 6))
        a_stride, steps = arguments[2], arguments[5]
        for half, instruction in enumerate(("tdpbssd", "tdpbusd")):

            def step(index: Any, _: list[Any], half: int = half, instruction: str = instruction) -> list[Any]:
                for side, register in enumerate(_A):
                    tile = builder.add(builder.mul(index, INT(2 * TILE_BYTES)), INT(half * TILE_BYTES))
                    place = builder.gep(a, [builder.add(tile, builder.mul(a_stride, INT(side)))])
                    _move_tile(builder, "tileloadd64", register, place, INT(_ROW_BYTES))
                for side, register in enumerate(_B):
                    place = builder.gep(
                        b, [builder.add(builder.mul(index, INT(2 * TILE_BYTES)), INT(side * TILE_BYTES))]
                    )
                    _move_tile(builder, "tileloadd64", register, place, INT(_ROW_BYTES))
                for register in _SUMS:
                    _call(builder, instruction, _BYTE(register), _BYTE(_A[register // 2]), _BYTE(_B[register % 2]))
                return []

            for register in _SUMS:
                _call(builder, "tilezero", _BYTE(register))
            loop(builder, steps, 1, [], step)
            for register in _SUMS:
                row, column = half * BLOCK + register // 2 * SIDE, register % 2 * SIDE
                _move_tile(
                    builder, "tilestored64", register, builder.gep(out, [INT(row * BLOCK + column)]), INT(4 * BLOCK)
                )
        return context.get_dummy_value()

    return types.void(a, number, number, b, number, number, out, number), generate


def _scale_row(_: Any, sums: Any, start: Any, step: Any, scales: Any, column: Any, out: Any, out_start: Any) -> Any:
    """Inside a kernel: a row of what `multiply_integers` leaves, as BLOCK numbers ``sum * step * scale``; flat."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        sums, scales, out = (address_of(context, builder, signature, arguments, index) for index in (0, 3, 5))
        step = spread(builder, arguments[2])
        for first in range(0, BLOCK, LANES):
            upper, lower = (
                load(builder, builder.gep(sums, [INT(half * BLOCK * BLOCK + first)]), _WORDS) for half in range(2)
            )
            total = builder.add(builder.shl(upper, ir.Constant(_WORDS, [8] * LANES)), lower)
            scale = load(builder, builder.gep(scales, [INT(first)]), VECTOR)
            result = builder.fmul(builder.fmul(builder.sitofp(total, VECTOR), step), scale)
            store(builder, result, builder.gep(out, [INT(first)]))
        return context.get_dummy_value()

    number = types.int64
    return types.void(sums, number, types.float32, scales, number, out, number), generate


def _halve_row(_: Any, x: Any, x_start: Any, out: Any, out_start: Any) -> Any:
    """Inside a kernel: BYTES_DEEP int16 of a row as a row of two tiles, of upper and of lower halves; flat."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, out = (address_of(context, builder, signature, arguments, index) for index in (0, 2))
        shorts, count = ir.VectorType(ir.IntType(16), 2 * LANES), 2 * LANES
        for first in range(0, BYTES_DEEP, count):
            number = load(builder, builder.gep(x, [INT(first)]), shorts)
            upper = builder.lshr(number, ir.Constant(shorts, [8] * count))
            for half, part in enumerate((upper, number)):
                lowest = builder.trunc(part, ir.VectorType(_BYTE, count))
                store(builder, lowest, builder.gep(out, [INT(half * TILE_BYTES + first)]))
        return context.get_dummy_value()

    return types.void(x, types.int64, out, types.int64), generate


def _regroup_panel(_: Any, panel: Any, panel_start: Any, steps: Any, out: Any, out_start: Any) -> Any:
    """Inside a kernel: steps times BYTES_DEEP numbers of each of a panel's BLOCK outputs as rows of tiles; flat.

    panel: int8, pairs of numbers next to each other. out: for each step two tiles, with four next to each other.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        panel, out = (address_of(context, builder, signature, arguments, index) for index in (0, 3))
        pairs = ir.VectorType(ir.IntType(16), LANES)

        def advance(four: Any, _: list[Any]) -> list[Any]:
            step, row = builder.lshr(four, INT(4)), builder.and_(four, INT(SIDE - 1))
            place = builder.add(builder.mul(step, INT(2 * TILE_BYTES)), builder.mul(row, INT(_ROW_BYTES)))
            for side in range(2):
                words = []
                for index in range(2):
                    first = builder.add(builder.mul(four, INT(4 * BLOCK)), INT(index * 2 * BLOCK + side * 2 * SIDE))
                    words.append(builder.zext(load(builder, builder.gep(panel, [first]), pairs), _WORDS))
                both = builder.or_(words[0], builder.shl(words[1], _SHIFT))
                store(builder, both, builder.gep(out, [builder.add(place, INT(side * TILE_BYTES))]))
            return []

        loop(builder, builder.mul(arguments[2], INT(SIDE)), 1, [], advance)
        return context.get_dummy_value()

    return types.void(panel, types.int64, types.int64, out, types.int64), generate


def _split_row(_: Any, x: Any, x_start: Any, out: Any, out_start: Any) -> Any:
    """Inside a kernel: DEPTH numbers of a row as PARTS rows of tiles, which are TILE numbers apart; flat."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, out = (address_of(context, builder, signature, arguments, index) for index in (0, 2))
        narrow = ir.VectorType(ir.IntType(16), LANES)
        for first in range(0, DEPTH, LANES):
            number = load(builder, builder.gep(x, [INT(first)]), VECTOR)
            for part, bits in enumerate(_split(builder, number, PARTS)):
                upper = builder.trunc(builder.lshr(bits, _SHIFT), narrow)
                store(builder, upper, builder.gep(out, [INT(part * TILE + first)]))
        return context.get_dummy_value()

    return types.void(x, types.int64, out, types.int64), generate


def _split_panel(_: Any, panel: Any, panel_start: Any, steps: Any, out: Any, out_start: Any) -> Any:
    """Inside a kernel: steps times DEPTH rows of BLOCK numbers of a panel as rows of tiles; flat.

    panel: float16 as its bits. out: for each step its parts, of each two tiles.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        panel, out = (address_of(context, builder, signature, arguments, index) for index in (0, 3))

        def advance(pair: Any, _: list[Any]) -> list[Any]:
            step, row = builder.lshr(pair, INT(4)), builder.and_(pair, INT(SIDE - 1))
            place = builder.add(builder.mul(step, INT(2 * HALF_PARTS * TILE)), builder.mul(row, INT(DEPTH)))
            for half in range(2):
                both = []
                for index in range(2):
                    first = builder.add(builder.mul(pair, INT(2 * BLOCK)), INT(index * BLOCK + half * SIDE))
                    number = load(builder, builder.gep(panel, [first]), HALVES)
                    both.append(_split(builder, builder.fpext(number, VECTOR), HALF_PARTS))
                for part, (one, other) in enumerate(zip(*both, strict=True)):
                    words = builder.or_(builder.lshr(one, _SHIFT), builder.and_(other, _UPPER))
                    store(builder, words, builder.gep(out, [builder.add(place, INT((2 * part + half) * TILE))]))
            return []

        loop(builder, builder.mul(arguments[2], INT(SIDE)), 1, [], advance)
        return context.get_dummy_value()

    return types.void(panel, types.int64, types.int64, out, types.int64), generate


def _split(builder: Any, number: Any, parts: int) -> list[Any]:
    """Numbers as sums of bfloat16, which have the next 8 bits each, in the upper half of 32."""
    found = []
    for _ in range(parts):
        found.append(builder.and_(builder.bitcast(number, _WORDS), _UPPER))
        number = builder.fsub(number, builder.bitcast(found[-1], VECTOR))
    return found


begin: Any = intrinsic(_begin)
end: Any = intrinsic(_end)
multiply_block: Any = intrinsic(_multiply_block)
multiply_integers: Any = intrinsic(_multiply_integers)
scale_row: Any = intrinsic(_scale_row)
halve_row: Any = intrinsic(_halve_row)
regroup_panel: Any = intrinsic(_regroup_panel)
split_row: Any = intrinsic(_split_row)
split_panel: Any = intrinsic(_split_panel)
