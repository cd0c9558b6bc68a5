"""The recurrent layer of the voice-activity network: a long short-term memory (Hochreiter & Schmidhuber 1997)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from transept.core.kernels.cpu.library import Int, KernelFunction, Pointer

Floats = npt.NDArray[np.float32]

_recur = KernelFunction("transept_recur", Pointer, Int, Int, Pointer, Pointer, Pointer, Pointer)


def recur(inputs: Floats, recurrent: Floats, hidden: Floats, memory: Floats) -> Floats:
    """Return the hidden state after each frame: [frames, size].

    inputs: [frames, 4 * size], the part of the gates' sums that comes from the frames, in PyTorch's order: input,
    forget, cell, output. recurrent: [size, 4 * size], the weights of the hidden state. hidden, memory: [size], before
    the first frame; after the call those after the last one. All are float32 and contiguous. Raises IndexError for
    other shapes.
    """
    frames, size = len(inputs), len(hidden)
    expected = ((inputs, (frames, 4 * size)), (recurrent, (size, 4 * size)), (hidden, (size,)), (memory, (size,)))
    for array, shape in expected:
        if array.shape != shape or array.dtype != np.float32 or not array.flags.c_contiguous:
            raise IndexError(f"float32 {[*shape]} is needed, not {array.dtype} {[*array.shape]}")
    states = np.empty((frames, size), np.float32)
    pointers = (array.ctypes.data for array in (recurrent, hidden, memory, states))
    _recur(inputs.ctypes.data, frames, size, *pointers)
    return states
