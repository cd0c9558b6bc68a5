"""PackedWeight: a loaded weight in the order in which kernels read it, by which a linear layer multiplies.

Made by `transept.core.layers.packing`; `transept.core.kernels.dispatch` has the kernels. On a CPU, weights are in
float32, in float16 if that is exact, in bfloat16 or in int8. With int8 weights, a CPU rounds activations to about 16
bits, and to 8 bits in encoders of audio and images; a GPU rounds them to int8 or fp8. In 8 bits, every output of a
weight has a scale.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from transept.core.kernels.dispatch import PRODUCT, Panels


class PackedWeight:
    """A weight [out, in], and the kernel that multiplies by it.

    usual_rows: rows of a typical product; encoder_rows: rows of a product with an encoder's output. The kernels are
    chosen by these once, so that results are batch-invariant. Raises LookupError if no kernel supports such panels.
    """

    def __init__(self, panels: Panels, shape: torch.Size, usual_rows: int = 1, encoder_rows: int = 1) -> None:
        self.panels, self.shape, self.usual_rows = panels, shape, usual_rows
        self._product, self._encoder_product = self._find(usual_rows), self._find(encoder_rows)

    def _find(self, rows: int) -> Callable[..., Tensor]:
        panels = self.panels
        product = PRODUCT.find(
            device=panels.device, dtype=panels.x_dtype, weights=panels.dtype, rows=rows, inputs=self.shape[1]
        )
        if product is None:
            raise LookupError(f"no kernel multiplies {panels.x_dtype} by weights in {panels.dtype} on {panels.device}")
        return product

    def activated(self, x: Tensor, bias: Tensor | None, activation: str) -> Tensor:
        """Return ``act(x @ weight.T + bias)``, on a CPU. x: [rows, in]. bias: [out]. activation: one of ACTIVATIONS."""
        return self._product(x, self.panels, bias, activation)

    def matmul(self, x: Tensor, bias: Tensor | None, outputs: slice, *, of_encoder: bool = False) -> Tensor:
        """Return ``x @ weight.T + bias`` for some outputs.

        x: [rows, in]. bias: [out]. of_encoder: True if x is an encoder's output.
        Returns [rows, outputs] in x's dtype, contiguous. Raises IndexError if x has another width than the weight.
        """
        first, stop, _ = outputs.indices(self.shape[0])
        before = first % self.panels.alignment  # a panel begins so many outputs earlier
        start = first - before
        product = self._encoder_product if of_encoder else self._product
        out = product(x, self.panels.outputs(start, stop), None if bias is None else bias[start:stop])
        return out[:, before:].contiguous() if before else out

    def rows(self, indices: Tensor, table: Tensor | None = None, places: Tensor | None = None) -> Tensor:
        """Return rows of the weight, for an embedding: [indices, in] in the dtype of activations.

        table: [size, in]. places: rows of the table to add, one for each index.
        """
        return self.panels.rows(indices, table, places)
