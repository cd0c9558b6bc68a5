"""Packed weights: what a linear layer multiplies by once it is loaded, in the order in which kernels read it.

Made by `transept.core.layers.packing`. On a CPU that is for kernels of ours, in float32, in float16 where it loses
nothing, or in int8, for which activations stay nearly as they are. On a GPU int8 and fp8 are PyTorch's own products,
for which activations are rounded to 8 bits, each row by its largest number. In 8 bits every output of a weight has a
scale of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from transept.core.kernels.cpu.gemm.panels import PANEL, WeightPanels, pack_floats, pack_int8
from transept.core.kernels.cpu.gemm.product import amx_serves, product, product_by_amx

ALIGNED = 16  # sizes of a weight that fp8 products on GPUs are made for
FEWEST_ROWS = 32  # of a product in int8 on a GPU, which takes more than 16; fewer are filled up


class PackedWeight(ABC):
    """A weight [out, in]; shape: (out, in)."""

    def __init__(self, weight: Tensor) -> None:
        self.shape = weight.shape

    @abstractmethod
    def matmul(self, x: Tensor, bias: Tensor | None, outputs: slice) -> Tensor:
        """``x @ weight.T + bias`` for some outputs.

        x: [rows, in], bias: [out]. Returns [rows, outputs] in x's dtype, contiguous.
        """

    @abstractmethod
    def rows(self, indices: Tensor) -> Tensor:
        """Some rows of the weight, as an embedding reads them: [indices, in] in the dtype of activations."""


class CpuWeight(PackedWeight):
    """One that kernels read, for float32 activations. It is made of what a checkpoint holds, in any dtype."""

    panels: WeightPanels
    product = staticmethod(product)

    def matmul(self, x: Tensor, bias: Tensor | None, outputs: slice) -> Tensor:
        """See PackedWeight.matmul. Raises IndexError where x has another width than the weight's rows."""
        first, stop, _ = outputs.indices(self.shape[0])
        before = first % PANEL  # a panel begins so many outputs earlier
        chosen = self.panels.outputs(first - before, stop)
        if not before:
            return self.product(x, chosen, None if bias is None else bias[first:stop])
        out = self.product(x, chosen, None)[:, before:]
        return out.contiguous() if bias is None else out + bias[first:stop]

    def rows(self, indices: Tensor) -> Tensor:
        """See PackedWeight.rows."""
        return self.panels.rows(indices)


class CpuFloat(CpuWeight):
    """float32, or float16 where that holds every number and the processor widens it as it is read.

    Whisper's weights were published in float16, and so are many others; a checkpoint in float32 may well hold such
    numbers. Every sum is float32, and the same to the last bit.
    """

    def __init__(self, weight: Tensor) -> None:
        super().__init__(weight)
        self.panels = pack_floats(weight)


class CpuFloatOfMany(CpuFloat):
    """The same for a weight that is multiplied with hundreds of rows, always: AMX does so faster, where there is one.

    With few rows it would be slower. All rows go there, whatever their number, so that one comes out the same.
    """

    def __init__(self, weight: Tensor) -> None:
        super().__init__(weight)
        if amx_serves(self.panels):
            self.product = product_by_amx


class CpuInt8(CpuWeight):
    """int8."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__(weight)
        self.panels = pack_int8(weight)


class _GpuWeight(PackedWeight):
    """Rows in 8 bits, as many as a GPU's products want, with a scale each. dtype: of activations."""

    largest: float
    storage: torch.dtype

    def __init__(self, weight: Tensor) -> None:
        super().__init__(weight)
        self.dtype = weight.dtype
        filled = torch.zeros(-(-len(weight) // ALIGNED) * ALIGNED, weight.shape[1], device=weight.device)
        filled[: len(weight)] = weight.detach()
        self.values, self.scales = self.rounded(filled)

    def rounded(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Each row by its largest number: values like x in 8 bits, and float32 [rows] scales."""
        scales = x.abs().amax(1).float() / self.largest
        steps = scales.clamp(min=torch.finfo(torch.float32).tiny)
        scaled = x.float() / steps[:, None]
        if self.storage is torch.int8:
            scaled = scaled.round_()
        return scaled.clamp_(-self.largest, self.largest).to(self.storage), steps

    def matmul(self, x: Tensor, bias: Tensor | None, outputs: slice) -> Tensor:
        """See PackedWeight.matmul."""
        first, stop, _ = outputs.indices(self.shape[0])
        chosen = slice(first // ALIGNED * ALIGNED, -(-stop // ALIGNED) * ALIGNED)
        product = self.product(*self.rounded(x), self.values[chosen], self.scales[chosen])
        product = product[:, first - chosen.start : stop - chosen.start]
        if bias is not None:
            product = product + bias[first:stop]
        return product.to(x.dtype).contiguous()

    @abstractmethod
    def product(self, x: Tensor, x_scales: Tensor, values: Tensor, scales: Tensor) -> Tensor:
        """The product of what `rounded` made of x with some rows of the weight."""

    def rows(self, indices: Tensor) -> Tensor:
        """See PackedWeight.rows."""
        values = self.values.view(torch.uint8)[indices].view(self.storage)  # not every PyTorch copies fp8 by index
        return (values.float() * self.scales[indices][:, None]).to(self.dtype)


class GpuInt8(_GpuWeight):
    """int8 on a GPU; its sums are integers."""

    largest, storage = 127.0, torch.int8

    def product(self, x: Tensor, x_scales: Tensor, values: Tensor, scales: Tensor) -> Tensor:
        """See _GpuWeight.product."""
        num_rows = len(x)
        if num_rows < FEWEST_ROWS:
            x = torch.cat([x, x.new_zeros(FEWEST_ROWS - num_rows, x.shape[1])])
        return torch._int_mm(x, values.t())[:num_rows].float() * x_scales[:, None] * scales


class GpuFp8(_GpuWeight):
    """fp8 (e4m3) on a GPU; results are bfloat16."""

    largest, storage = torch.finfo(torch.float8_e4m3fn).max, torch.float8_e4m3fn

    def product(self, x: Tensor, x_scales: Tensor, values: Tensor, scales: Tensor) -> Tensor:
        """See _GpuWeight.product."""
        return torch._scaled_mm(
            x, values.t(), scale_a=x_scales[:, None], scale_b=scales[None], out_dtype=torch.bfloat16
        )
