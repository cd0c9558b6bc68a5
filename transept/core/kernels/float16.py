"""Whether float16 weights can be read by kernels that compute in float32."""

from __future__ import annotations

import platform

import llvmlite.binding


def widens_float16() -> bool:
    """Whether this processor has the instruction that widens them; without it each number would be a call."""
    if platform.machine().lower() in ("arm64", "aarch64"):
        return True
    return bool(llvmlite.binding.get_host_cpu_features().get("f16c", False))
