"""Pieces of work for whichever thread is free.

Numba's prange gives every thread as many pieces from the start, and then waits for the slowest: one that shares its
core with another program, or that runs on one of a laptop's slower cores. Here each takes one piece after the other:

    taken = nothing_taken()
    for _ in prange(WORKERS):
        piece = take(taken)
        while piece < num_pieces:
            ...
            piece = take(taken)
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from transept.core.kernels.launch import kernel
from transept.core.kernels.tiles import INT

WORKERS = 128  # threads that can share; where there are fewer, the workers that come later find nothing to do


@kernel()
def nothing_taken() -> npt.NDArray[np.int64]:
    """What `take` counts in."""
    return np.zeros(1, np.int64)


def _take(_: Any, taken: Any) -> Any:
    """Inside a kernel: the number of pieces that were taken before this one, by all threads."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        counter = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.atomic_rmw("add", counter, ir.Constant(INT, 1), "monotonic")

    return types.int64(taken), generate


take: Any = intrinsic(_take)
