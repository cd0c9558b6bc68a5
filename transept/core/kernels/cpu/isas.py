"""The instruction sets that CPU kernels are compiled for, one row each.

A row has the compiler's flags, the capabilities of its kernels, and the CPUID bits or features to detect. `setup.py`
compiles the kernels once for each row of its machine, `processor.py` detects the rows that run, `library.py` loads the
highest of them, and `dispatch.py` compares a row's capabilities with a kernel's needs. CONTRIBUTING.md says how to add
a row.

setup.py runs this file before anything is installed, so it imports the standard library alone.
"""

from __future__ import annotations

from typing import NamedTuple


class Cpuid(NamedTuple):
    """A bit in the result of x86-64's CPUID instruction. register: 0 to 3 for eax, ebx, ecx and edx."""

    leaf: int
    subleaf: int
    register: int
    bit: int


class SavedState(NamedTuple):
    """Bits of XCR0: the registers that the system saves when it switches threads."""

    bits: int


class ArmFeature(NamedTuple):
    """A feature of 64-bit Arm.

    word, bit: where Linux reports it: `getauxval`'s AT_HWCAP or AT_HWCAP2, and the bit's number. name: macOS's name, in
    hw.optional.arm.
    """

    word: int
    bit: int
    name: str


Feature = Cpuid | SavedState | ArmFeature


class Isa(NamedTuple):
    """An instruction set.

    header: the file in isa/ with its primitives; sets that differ in a few instructions share one.
    machine: the architecture, as in `platform.machine`, in lower case; None: all. flags: options of the compiler.
    capabilities: some of those below. features: features that the processor and the system must have.
    permission: number, as in XCR0, of a state that a process must request from Linux before use; None: no request.
    """

    name: str
    header: str
    machine: str | None = None
    flags: tuple[str, ...] = ()
    capabilities: frozenset[str] = frozenset()
    features: tuple[Feature, ...] = ()
    permission: int | None = None


FP16_CONVERT = "fp16_convert"  # read float16 as fast as float32
DOT_INT8 = "dot_int8"  # dot products of four int8 (SDOT), or of four uint8 by int8 (VNNI)
BF16_DOT = "bf16_dot"  # dot products of two bfloat16 pairs, or matrix products of bfloat16 (BFMMLA)
TILES = "tiles"  # matrix products of int8 and of bfloat16 tiles (AMX)

_AVX2 = ("-mavx2", "-mfma", "-mf16c", "-mbmi", "-mbmi2", "-mlzcnt")
_AVX512 = (*_AVX2, "-mavx512f", "-mavx512bw", "-mavx512cd", "-mavx512dq", "-mavx512vl")
_VNNI = (*_AVX512, "-mavx512vnni")
_BF16 = (*_VNNI, "-mavx512bf16")
_AMX = (*_BF16, "-mamx-tile", "-mamx-bf16", "-mamx-int8")

_EAX, _EBX, _ECX, _EDX = range(4)
_TILE_DATA = 18  # in XCR0; 17 is the tiles' configuration

_HAS_AVX2: tuple[Feature, ...] = (
    Cpuid(1, 0, _ECX, 27),  # OSXSAVE: XCR0 can be read
    SavedState(1 << 1 | 1 << 2),  # registers of 128 and of 256 bits
    Cpuid(1, 0, _ECX, 12),  # FMA
    Cpuid(1, 0, _ECX, 29),  # F16C
    Cpuid(7, 0, _EBX, 3),  # BMI1
    Cpuid(7, 0, _EBX, 5),  # AVX2
    Cpuid(7, 0, _EBX, 8),  # BMI2
    Cpuid(0x80000001, 0, _ECX, 5),  # LZCNT
)
_HAS_AVX_VNNI: tuple[Feature, ...] = (*_HAS_AVX2, Cpuid(7, 1, _EAX, 4))
_HAS_AVX512: tuple[Feature, ...] = (
    *_HAS_AVX2,
    SavedState(1 << 5 | 1 << 6 | 1 << 7),  # masks, and registers of 512 bits
    *(Cpuid(7, 0, _EBX, bit) for bit in (16, 17, 28, 30, 31)),  # F, DQ, CD, BW, VL
)
_HAS_VNNI: tuple[Feature, ...] = (*_HAS_AVX512, Cpuid(7, 0, _ECX, 11))
_HAS_BF16: tuple[Feature, ...] = (*_HAS_VNNI, Cpuid(7, 1, _EAX, 5))
_HAS_AMX: tuple[Feature, ...] = (
    *_HAS_BF16,
    *(Cpuid(7, 0, _EDX, bit) for bit in (22, 24, 25)),  # BF16, TILE, INT8
    SavedState(1 << 17 | 1 << _TILE_DATA),
)

_HWCAP, _HWCAP2 = 16, 26  # AT_HWCAP and AT_HWCAP2
_HAS_DOT: tuple[Feature, ...] = (ArmFeature(_HWCAP, 20, "FEAT_DotProd"),)
_HAS_I8MM: tuple[Feature, ...] = (
    *_HAS_DOT,
    ArmFeature(_HWCAP2, 13, "FEAT_I8MM"),
    ArmFeature(_HWCAP2, 14, "FEAT_BF16"),
)

_X86, _ARM = "x86_64", "aarch64"
# GCC would load all rows' numbers of a step before the first of its products, and has no registers for them.
_NEON = ("-fno-schedule-insns",)
_DOT = "-march=armv8.2-a+dotprod"
_I8MM = "-march=armv8.2-a+dotprod+i8mm+bf16"
_CONVERTS = frozenset({FP16_CONVERT})
_MULTIPLIES_BYTES = _CONVERTS | {DOT_INT8}
_MULTIPLIES_BF16 = _MULTIPLIES_BYTES | {BF16_DOT}

# Lowest first for each machine. A processor that runs avx_vnni may run all, some or none of the x86-64 rows after it.
ISAS = (
    Isa("portable", "generic.h"),
    Isa("avx2", "avx2.h", _X86, _AVX2, _CONVERTS, _HAS_AVX2),
    Isa("avx_vnni", "avx2.h", _X86, (*_AVX2, "-mavxvnni"), _MULTIPLIES_BYTES, _HAS_AVX_VNNI),
    Isa("avx512", "avx512.h", _X86, _AVX512, _CONVERTS, _HAS_AVX512),
    Isa("avx512_vnni", "avx512.h", _X86, _VNNI, _MULTIPLIES_BYTES, _HAS_VNNI),
    Isa("avx512_bf16", "avx512.h", _X86, _BF16, _MULTIPLIES_BF16, _HAS_BF16),
    Isa("amx", "avx512.h", _X86, _AMX, _MULTIPLIES_BF16 | {TILES}, _HAS_AMX, _TILE_DATA),
    Isa("neon", "neon.h", _ARM, _NEON, _CONVERTS),
    Isa("neon_dot", "neon.h", _ARM, (*_NEON, _DOT), _MULTIPLIES_BYTES, _HAS_DOT),
    Isa("neon_i8mm", "neon.h", _ARM, (*_NEON, _I8MM), _MULTIPLIES_BF16, _HAS_I8MM),
)

# Flag -> the macro that marks the sources, and headers outside isa/, which the flag affects.
TESTED_AS = {
    "-mavxvnni": "ISA_PAIRS",
    "-mavx512vnni": "ISA_PAIRS",
    "-mavx512bf16": "ISA_PAIRS",
    _DOT: "ISA_PAIRS",
    _I8MM: "ISA_PAIRS",
    "-mamx-tile": "AMX_TILE",
    "-mamx-bf16": "AMX_TILE",
    "-mamx-int8": "AMX_TILE",
}


def compiled_on(machine: str) -> tuple[Isa, ...]:
    """Return the rows for a machine that `platform.machine` names."""
    machine = machine.lower()
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)
    return tuple(isa for isa in ISAS if isa.machine in (None, machine))
