"""Detects which instruction sets of isas.py this processor and this system run.

Called by library.py. Detecting one asks the system for no permission and loads no kernels but the portable ones, which
run everywhere and read the processor's registers.
"""

from __future__ import annotations

import ctypes
import platform
import sys

from transept.core.kernels.cpu.isas import Cpuid, Feature, Isa, SavedState, compiled_on
from transept.system import sysctl


def instruction_sets(portable: ctypes.CDLL) -> list[Isa]:
    """Return the rows of isas.py that run here, lowest first. portable: the library of the first row."""
    return [isa for isa in compiled_on(platform.machine()) if all(has(each, portable) for each in isa.features)]


def has(feature: Feature, portable: ctypes.CDLL) -> bool:
    """Return True if the processor and the system have a feature."""
    if isinstance(feature, Cpuid):
        leaf, subleaf, register, bit = feature
        return bool(portable.transept_cpuid(ctypes.c_uint32(leaf), subleaf, register) >> bit & 1)
    if isinstance(feature, SavedState):
        portable.transept_saved_state.restype = ctypes.c_uint64
        return portable.transept_saved_state() & feature.bits == feature.bits
    if sys.platform == "darwin":
        return bool(sysctl(f"hw.optional.arm.{feature.name}"))
    return sys.platform == "linux" and bool(_auxiliary_value(feature.word) >> feature.bit & 1)


def permits(isa: Isa, portable: ctypes.CDLL) -> bool:
    """Request an instruction set's permission from the system, and return True if the process may now use it."""
    return isa.permission is None or portable.transept_ask_permission(isa.permission) == 0


def _auxiliary_value(word: int) -> int:
    """Return a word that Linux passes to each process, such as AT_HWCAP."""
    getauxval = ctypes.CDLL(None).getauxval
    getauxval.argtypes, getauxval.restype = [ctypes.c_ulong], ctypes.c_ulong
    return int(getauxval(word))
