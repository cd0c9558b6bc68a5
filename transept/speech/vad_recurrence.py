"""The recurrent layer of the voice-activity network: a long short-term memory (Hochreiter & Schmidhuber 1997)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from transept.core.kernels.launch import kernel
from transept.core.kernels.pointwise import exp, tanh

Floats = npt.NDArray[np.float32]


@kernel(nogil=True)
def recur(inputs: Floats, recurrent: Floats, hidden: Floats, memory: Floats) -> Floats:
    """The hidden state after each frame: [frames, size].

    inputs: [frames, 4 * size], the gates' sums as far as the frames determine them, in PyTorch's order: input, forget,
    cell, output. recurrent: [size, 4 * size], what hidden adds to them. hidden, memory: [size], before the first frame,
    and after the call those after the last.
    """
    size = len(hidden)
    states = np.empty((len(inputs), size), np.float32)
    for frame in range(len(inputs)):
        gates = inputs[frame].copy()
        for i in range(size):
            _add_scaled(gates, hidden[i], recurrent[i])
        _step(gates, hidden, memory)
        states[frame] = hidden
    return states


@kernel()
def _add_scaled(gates: Floats, share: np.float32, row: Floats) -> None:
    for i in range(len(gates)):
        gates[i] += share * row[i]


@kernel()
def _step(gates: Floats, hidden: Floats, memory: Floats) -> None:
    size = len(hidden)
    for i in range(size):
        kept = memory[i] * _sigmoid(gates[size + i])
        memory[i] = kept + _sigmoid(gates[i]) * tanh(gates[2 * size + i])
        hidden[i] = _sigmoid(gates[3 * size + i]) * tanh(memory[i])


@kernel()
def _sigmoid(x: np.float32) -> np.float32:
    return np.float32(1) / (np.float32(1) + exp(-x))
