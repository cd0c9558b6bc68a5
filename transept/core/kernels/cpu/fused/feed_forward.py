"""A feed-forward network added to a residual, for many rows at once, in one call.

The hidden states between the two products are as large as all other activations of an encoder's layer. They are never
written to memory as a whole, because each thread takes some rows through both products. Called by
`transept.core.layers.feed_forward.FeedForward`. Each row is batch-invariant, and equals two products' bit for bit.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from transept.core.kernels.activations import ACTIVATIONS
from transept.core.kernels.cpu.fused.decoder_layer import LinearStruct, Projection
from transept.core.kernels.cpu.library import Int, KernelFunction, Pointer

_add_feed_forward = KernelFunction("transept_add_feed_forward", Pointer, Int, Pointer, Pointer)
TILE_INPUTS = {torch.bfloat16: 32, torch.uint8: 64}  # dtype of weights -> numbers of a row of a tile


class _FeedForwardStruct(ctypes.Structure):
    """FeedForward of fused/feed_forward.cpp."""

    _fields_ = (("fc1", LinearStruct), ("fc2", LinearStruct), ("activation", Int))


class FeedForwardKernel:
    """``x += fc2(act(fc1(normed)))`` of weights in bfloat16, or in int8 for rows in int8.

    activation: one of ACTIVATIONS. Raises IndexError if the sizes do not fit together.
    """

    def __init__(self, fc1: Projection, fc2: Projection, activation: str) -> None:
        self._hidden, self._inner = fc1.weight.num_inputs, fc1.weight.num_outputs
        self._outputs = fc2.weight.num_outputs
        if not self.serves(fc1, fc2) or self._inner != fc2.weight.num_inputs:
            sizes = [self._hidden, self._inner, fc2.weight.num_inputs, self._outputs]
            raise IndexError(f"a feed-forward network from {sizes} in {fc1.weight.dtype} has no kernel")
        for projection in (fc1, fc2):
            bias = projection.bias
            if bias is not None and bias.shape != (projection.weight.num_outputs,):
                raise IndexError(f"a bias of {[*bias.shape]} is not that of {projection.weight.num_outputs} outputs")
        self._kept = fc1, fc2  # the kernel reads their memory
        self._struct = _FeedForwardStruct(fc1.struct, fc2.struct, ACTIVATIONS[activation].number)

    @staticmethod
    def serves(fc1: Projection, fc2: Projection) -> bool:
        """Return True if weights of these dtypes and sizes have this kernel."""
        wide = TILE_INPUTS.get(fc1.weight.dtype, 0)
        inputs = (fc1.weight.num_inputs, fc2.weight.num_inputs)
        return bool(wide) and fc1.weight.dtype is fc2.weight.dtype and not any(size % wide for size in inputs)

    def __call__(self, x: Tensor, normed: Tensor) -> Tensor:
        """Add the network's output to x and return x. x: float32 [rows, out]; normed: float32 [rows, in].

        Raises IndexError for other shapes, or if x is not contiguous.
        """
        shapes = (tuple(x.shape), tuple(normed.shape))
        if shapes != ((len(x), self._outputs), (len(x), self._hidden)) or not x.is_contiguous():
            raise IndexError(f"rows of {shapes} do not fit a network from {self._hidden} to {self._outputs}")
        normed = normed.contiguous()
        _add_feed_forward(normed.data_ptr(), len(x), ctypes.addressof(self._struct), x.data_ptr())
        return x
