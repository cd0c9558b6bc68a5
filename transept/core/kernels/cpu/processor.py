"""Detects which instruction sets of isas.py this processor and this system run.

Called by library.py. Detecting one asks the system for no permission and loads no kernels but the portable ones, which
run everywhere and read the processor's registers.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

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
        return bool(sysctl(f"hw.optional.arm.{feature}"))
    return feature in _listed_features()


def permits(isa: Isa, portable: ctypes.CDLL) -> bool:
    """Request an instruction set's permission from the system, and return True if the process may now use it."""
    return isa.permission is None or portable.transept_ask_permission(isa.permission) == 0


@cache
def _listed_features() -> frozenset[str]:
    """Return the names that Linux lists: flags on x86-64, features on 64-bit Arm."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, listed = line.partition(":")
            if name.strip() in ("flags", "Features"):
                return frozenset(listed.split())
    return frozenset()
