"""Convolutions over time, as encoders of sound begin with them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from torch import Tensor, nn
from torch.nn import functional as F

from transept.core.kernels.dispatch import PRODUCT_AND_GELU
from transept.core.layers.packed_weights import PackedWeight


class GeluConv1d(nn.Conv1d):
    """``gelu(conv1d(x))``, as the first layers of encoders of sound.

    Where a kernel multiplies, adds a bias and applies GELU, or where the weight is packed, every output frame is a row
    of one product; elsewhere PyTorch's convolution computes it. Neither dilation nor groups.
    """

    packed: PackedWeight | None  # of `rows_of_products`, set by packing.WeightPacker once the weight is loaded

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1, padding: int = 0
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding)
        self.packed = None

    def forward(self, x: Tensor) -> Tensor:
        """x: [batch, frames, channels]. Returns [batch, frames / stride, channels]."""
        if self.packed is not None:
            return self._by_rows(x, self._packed_product)
        product = PRODUCT_AND_GELU.serving(x)
        if product is None or self.bias is None or isinstance(self.padding, str):
            return F.gelu(super().forward(x.transpose(1, 2))).transpose(1, 2)
        return self.as_product(x, product)

    def as_product(self, x: Tensor, product: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
        """The same by a kernel of PRODUCT_AND_GELU."""
        bias = self.bias
        assert bias is not None
        return self._by_rows(x, lambda rows: product(rows, self._rows, bias))

    def _packed_product(self, rows: Tensor) -> Tensor:
        assert self.packed is not None
        return self.packed.activated(rows, self.bias, "gelu")

    def _by_rows(self, x: Tensor, product: Callable[[Tensor], Tensor]) -> Tensor:
        """product: of [rows, size · in], the input's frames that each output frame sees, one after the other."""
        padding = self.padding
        assert not isinstance(padding, str)
        padded = F.pad(x, (0, 0, padding[0], padding[0]))
        frames = padded.unfold(1, self.kernel_size[0], self.stride[0]).transpose(2, 3)  # [batch, frames, size, in]
        return product(frames.flatten(2).flatten(0, 1)).view(len(x), -1, self.out_channels)

    @cached_property
    def _rows(self) -> Tensor:
        return rows_of_products(self.weight)


def rows_of_products(weight: Tensor) -> Tensor:
    """A convolution's weight [out, in, size] as products read it: [out, size · in]."""
    return weight.transpose(1, 2).flatten(1).contiguous()
