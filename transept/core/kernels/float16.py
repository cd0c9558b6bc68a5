"""float16 weights in kernels that compute in float32: their bits are uint16 in arrays, and widened as they are read.

Numba has no float16 on CPUs; the instruction that widens eight of them at a time is there all the same.
"""

from __future__ import annotations

import platform
from typing import Any

import llvmlite.binding
import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

Matrix = npt.NDArray[np.float32] | npt.NDArray[np.uint16]


def _widen(_: Any, number: Any) -> Any:
    """Inside a kernel: a float32 as it is, a uint16 as the float32 of the float16 with these bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if number == types.float32:
            return arguments[0]
        return builder.fpext(builder.bitcast(arguments[0], ir.HalfType()), ir.FloatType())

    return types.float32(number), generate


widen: Any = intrinsic(_widen)


def widens_float16() -> bool:
    """Whether this processor has the instruction; without it each number would be a call."""
    if platform.machine().lower() in ("arm64", "aarch64"):
        return True
    return bool(llvmlite.binding.get_host_cpu_features().get("f16c", False))
