"""``x @ weight.T + bias`` by the kernels. What comes out of a row is the same to the last bit whatever is beside it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from transept.core.kernels.cpu.gemm.panels import WeightPanels
from transept.core.kernels.cpu.library import Int, Pointer, bind

_product = bind("transept_product", Pointer, Int, Pointer, Pointer, Pointer)
_product_by_amx = bind("transept_float_product_by_amx", Pointer, Int, Pointer, Pointer, Pointer)


def product(x: Tensor, weight: WeightPanels, bias: Tensor | None) -> Tensor:
    """x: float32 [rows, in] on the CPU. bias: float32 [out]. Returns [rows, out].

    Raises IndexError for other shapes.
    """
    return _run(_product, x, weight, bias)


def product_by_amx(x: Tensor, weight: WeightPanels, bias: Tensor | None) -> Tensor:
    """The same by AMX, for weights in float16 of a multiple of 32 inputs. Faster for hundreds of rows, else slower."""
    return _run(_product_by_amx, x, weight, bias)


def _run(kernel: Callable[..., None], x: Tensor, weight: WeightPanels, bias: Tensor | None) -> Tensor:
    shape = [weight.num_outputs, weight.num_inputs]
    if x.dim() != 2 or x.shape[1] != shape[1]:
        raise IndexError(f"rows of {x.shape[-1]} numbers cannot be multiplied with a weight of {shape}")
    if bias is not None and bias.shape != (shape[0],):
        raise IndexError(f"a bias of {[*bias.shape]} cannot be added to the products with a weight of {shape}")
    x, out = x.contiguous(), torch.empty(x.shape[0], weight.num_outputs)
    biases = None if bias is None else bias.contiguous()
    kernel(x.data_ptr(), len(x), weight.address, None if biases is None else biases.data_ptr(), out.data_ptr())
    return out
