"""What this processor's vector instructions can do."""

from __future__ import annotations

import platform

import llvmlite.binding
import numba


def has(feature: str) -> bool:
    """Whether kernels are compiled for an instruction set, by LLVM's name for it."""
    chosen = numba.config.CPU_FEATURES  # type: ignore[attr-defined]  # of NUMBA_CPU_FEATURES
    if chosen is not None:
        return f"+{feature}" in chosen.split(",")
    return bool(llvmlite.binding.get_host_cpu_features().get(feature, False))


def widens_float16() -> bool:
    """Whether kernels that compute in float32 can read float16 weights; elsewhere each number would be a call."""
    return platform.machine().lower() in ("arm64", "aarch64") or has("f16c")
