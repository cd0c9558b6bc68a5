"""The instruction sets that CPU kernels are compiled for: names, compiler flags and capabilities, one row each.

`setup.py` compiles the kernels once for each row, `library.py` loads those of the highest row that the processor runs,
and `dispatch.py` compares a row's capabilities with what a kernel needs. `transept_levels` in cpu.cpp detects the rows,
by their order. setup.py runs this file before anything is installed, so it imports the standard library alone.
"""

from __future__ import annotations

from typing import NamedTuple


class Isa(NamedTuple):
    """An instruction set. flags: options of the compiler. capabilities: of those below. on_x86: x86-64 alone has it."""

    name: str
    flags: tuple[str, ...] = ()
    capabilities: frozenset[str] = frozenset()
    on_x86: bool = True


FP16_CONVERT = "fp16_convert"  # read float16 as fast as float32
DOT_U8S8 = "dot_u8s8"  # multiply four pairs of bytes at a time
BF16_DOT = "bf16_dot"  # multiply pairs of bfloat16
TILES = "tiles"  # multiply blocks of bytes and of bfloat16

_AVX2 = ("-mavx2", "-mfma", "-mf16c", "-mbmi", "-mbmi2", "-mlzcnt")
_AVX512 = (*_AVX2, "-mavx512f", "-mavx512bw", "-mavx512cd", "-mavx512dq", "-mavx512vl")
_VNNI = (*_AVX512, "-mavx512vnni")
_BF16 = (*_VNNI, "-mavx512bf16")
_AMX = (*_BF16, "-mamx-tile", "-mamx-bf16", "-mamx-int8")

# Lowest first. A processor that runs avx_vnni may run all, some or none of the rows after it.
ISAS = (
    Isa("portable", on_x86=False),
    Isa("avx2", _AVX2, frozenset({FP16_CONVERT})),
    Isa("avx_vnni", (*_AVX2, "-mavxvnni"), frozenset({FP16_CONVERT, DOT_U8S8})),
    Isa("avx512", _AVX512, frozenset({FP16_CONVERT})),
    Isa("avx512_vnni", _VNNI, frozenset({FP16_CONVERT, DOT_U8S8})),
    Isa("avx512_bf16", _BF16, frozenset({FP16_CONVERT, DOT_U8S8, BF16_DOT})),
    Isa("amx", _AMX, frozenset({FP16_CONVERT, DOT_U8S8, BF16_DOT, TILES})),
)

# A flag, and the part of a macro that a source tests if the flag changes how the source is compiled.
TESTED_AS = {
    "-mavxvnni": "AVXVNNI",
    "-mavx512vnni": "AVX512VNNI",
    "-mavx512bf16": "AVX512BF16",
    "-mamx-tile": "AMX_TILE",
    "-mamx-bf16": "AMX_TILE",
    "-mamx-int8": "AMX_TILE",
}
