"""Weights in 8 bits: what a linear layer multiplies by in place of its parameter.

int8 on a CPU is read by a kernel of ours (`transept.core.kernels.int8`), which keeps activations nearly as they are; on
a GPU int8 and fp8 are PyTorch's own products, for which activations are rounded to 8 bits, each row by its largest
number. Every output of a weight has a scale of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from transept.core.kernels import int8
from transept.core.kernels.tiles import COLUMNS

ALIGNED = 16  # sizes of a weight that fp8 products on GPUs are made for
FEWEST_ROWS = 32  # of a product in int8 on a GPU, which takes more than 16; fewer are filled up
LARGEST_INT8, LARGEST_FP8 = 127.0, 448.0
FP8 = torch.float8_e4m3fn


class QuantizedWeight(ABC):
    """A weight [out, in] in 8 bits.

    shape: (out, in). dtype: of what it replaces, and so of the activations.
    """

    def __init__(self, weight: Tensor) -> None:
        self.shape = weight.shape
        self.dtype = weight.dtype

    @abstractmethod
    def multiply(self, x: Tensor, bias: Tensor | None, outputs: slice) -> Tensor:
        """``x @ weight.T + bias`` for some outputs.

        x: [rows, in], bias: [out]. Returns [rows, outputs] in x's dtype, contiguous.
        """

    @abstractmethod
    def rows(self, indices: Tensor) -> Tensor:
        """Some rows of the weight, as an embedding reads them: [indices, in] in `dtype`."""


class CpuInt8(QuantizedWeight):
    """int8 on a CPU; float32 activations."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__(weight)
        self.packed = int8.pack(weight.detach())

    def multiply(self, x: Tensor, bias: Tensor | None, outputs: slice) -> Tensor:
        """See QuantizedWeight.multiply."""
        first, stop, _ = outputs.indices(self.shape[0])
        before = first % COLUMNS  # a panel begins so many outputs earlier
        chosen = self.packed.outputs(slice(first - before, stop))
        if not before:
            return int8.linear(x, chosen, None if bias is None else bias[first:stop])
        out = int8.linear(x, chosen, None)[:, before:]
        return out.contiguous() if bias is None else out + bias[first:stop]

    def rows(self, indices: Tensor) -> Tensor:
        """See QuantizedWeight.rows."""
        return int8.rows_of(self.packed, indices, self.shape[1])


class _GpuWeight(QuantizedWeight):
    """Rows in 8 bits, as many as a GPU's products want, with a scale each."""

    largest: float
    storage: torch.dtype

    def __init__(self, weight: Tensor) -> None:
        super().__init__(weight)
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

    def multiply(self, x: Tensor, bias: Tensor | None, outputs: slice) -> Tensor:
        """See QuantizedWeight.multiply."""
        first, stop, _ = outputs.indices(self.shape[0])
        chosen = slice(first, -(-stop // ALIGNED) * ALIGNED)
        product = self.product(*self.rounded(x), self.values[chosen], self.scales[chosen])[:, : stop - first]
        if bias is not None:
            product = product + bias[first:stop]
        return product.to(x.dtype).contiguous()

    @abstractmethod
    def product(self, x: Tensor, x_scales: Tensor, values: Tensor, scales: Tensor) -> Tensor:
        """The product of what `rounded` made of x with some rows of the weight."""

    def rows(self, indices: Tensor) -> Tensor:
        """See QuantizedWeight.rows."""
        return (self.values[indices].float() * self.scales[indices][:, None]).to(self.dtype)


class GpuInt8(_GpuWeight):
    """int8 on a GPU; its sums are integers."""

    largest, storage = LARGEST_INT8, torch.int8

    def product(self, x: Tensor, x_scales: Tensor, values: Tensor, scales: Tensor) -> Tensor:
        """See _GpuWeight.product."""
        num_rows = len(x)
        if num_rows < FEWEST_ROWS:
            x = torch.cat([x, x.new_zeros(FEWEST_ROWS - num_rows, x.shape[1])])
        return torch._int_mm(x, values.t())[:num_rows].float() * x_scales[:, None] * scales


class GpuFp8(_GpuWeight):
    """fp8 (e4m3) on a GPU; results are bfloat16."""

    largest, storage = LARGEST_FP8, FP8

    def product(self, x: Tensor, x_scales: Tensor, values: Tensor, scales: Tensor) -> Tensor:
        """See _GpuWeight.product."""
        return torch._scaled_mm(
            x, values.t(), scale_a=x_scales[:, None], scale_b=scales[None], out_dtype=torch.bfloat16
        )
