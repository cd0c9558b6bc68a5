"""``act(x @ weight.T + bias)`` by the kernels. Each row is batch-invariant, bit for bit."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from transept.core.kernels.activations import ACTIVATIONS
from transept.core.kernels.cpu.gemm.panels import WeightPanels
from transept.core.kernels.cpu.library import Int, KernelFunction, Pointer, pointer

NO_ACTIVATION = -1


class Product:
    """The product by a compiled function."""

    def __init__(self, kernel: Callable[..., int]) -> None:
        self._kernel = kernel

    def __call__(self, x: Tensor, weight: WeightPanels, bias: Tensor | None, activation: str | None = None) -> Tensor:
        """Multiply x, float32 [rows, in] on the CPU. bias: float32 [out]. activation: in ACTIVATIONS.

        Returns [rows, out]. Raises IndexError for other shapes, and TypeError for other dtypes and devices.
        """
        shape = [weight.num_outputs, weight.num_inputs]
        if x.dim() != 2 or x.shape[1] != shape[1]:
            raise IndexError(f"rows of {x.shape[-1]} numbers cannot be multiplied with a weight of {shape}")
        if bias is not None and bias.shape != (shape[0],):
            raise IndexError(f"a bias of {[*bias.shape]} cannot be added to the products with a weight of {shape}")
        for name, part in (("rows", x), ("a bias", bias)):
            if part is not None and (part.dtype is not torch.float32 or not part.is_cpu):
                where = f"{part.dtype} on {part.device}"
                raise TypeError(f"a packed weight takes {name} in float32 on the CPU, not in {where}")
        x, out = x.contiguous(), torch.empty(len(x), weight.num_outputs, dtype=torch.float32)
        biases = None if bias is None else bias.contiguous()
        number = NO_ACTIVATION if activation is None else ACTIVATIONS[activation].number
        self._kernel(x.data_ptr(), len(x), weight.address, pointer(biases), number, out.data_ptr())
        return out


_TYPES = (Pointer, Int, Pointer, Pointer, Int, Pointer)
product = Product(KernelFunction("transept_product", *_TYPES))
# For float16 weights of a multiple of 32 inputs. Faster for hundreds of rows, else slower.
product_by_amx = Product(KernelFunction("transept_float_product_by_amx", *_TYPES))
