"""``x @ weight.T + bias`` by the kernels. What comes out of a row is the same to the last bit whatever is beside it."""

from __future__ import annotations

import torch
from torch import Tensor

from transept.core.kernels.cpu.gemm.packed import PackedWeight
from transept.core.kernels.cpu.library import Int, Pointer, bind

_multiply = bind("transept_multiply", Pointer, Int, Pointer, Pointer, Pointer)
_multiply_by_amx = bind("transept_multiply_floats_by_amx", Pointer, Int, Pointer, Pointer, Pointer)
_amx_multiplies_floats = bind("transept_amx_multiplies_floats", Int, returns=Int)


def multiply(x: Tensor, weight: PackedWeight, bias: Tensor | None) -> Tensor:
    """x: float32 [rows, in] on the CPU. bias: float32 [out]. Returns [rows, out].

    Raises IndexError for other shapes.
    """
    return _multiplied(_multiply, x, weight, bias)


def multiply_by_amx(x: Tensor, weight: PackedWeight, bias: Tensor | None) -> Tensor:
    """The same by AMX, for weights that it serves; faster for hundreds of rows, slower for few."""
    return _multiplied(_multiply_by_amx, x, weight, bias)


def amx_serves(weight: PackedWeight) -> bool:
    """Whether this processor has AMX and a product by it for such a weight."""
    return weight.dtype is torch.float16 and bool(_amx_multiplies_floats(weight.num_inputs))


def _multiplied(kernel: object, x: Tensor, weight: PackedWeight, bias: Tensor | None) -> Tensor:
    assert callable(kernel)
    if x.dim() != 2 or x.shape[1] != weight.num_inputs or (bias is not None and len(bias) != weight.num_outputs):
        raise IndexError(
            f"rows of {[*x.shape]} cannot be multiplied with a weight of {[weight.num_outputs, weight.num_inputs]}"
            + ("" if bias is None else f" and a bias of {[*bias.shape]}")
        )
    x, out = x.contiguous(), torch.empty(x.shape[0], weight.num_outputs)
    biases = None if bias is None else bias.contiguous()
    kernel(
        x.data_ptr(), len(x), weight.address, None if biases is None else biases.data_ptr(), out.data_ptr()
    )
    return out
