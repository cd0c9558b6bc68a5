"""GeluConv1d: convolutions over time, the first layers of audio encoders."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from torch import Tensor, nn
from torch.nn import functional as F

from transept.core.kernels.dispatch import PRODUCT_AND_GELU
from transept.core.layers.packed_weights import PackedWeight


class GeluConv1d(nn.Conv1d):
    """``gelu(conv1d(x))``, as in the first layers of audio encoders.

    Its parameters have the names of ``nn.Conv1d``.

    If a kernel multiplies, adds a bias and applies GELU, or if the weight is packed, every output frame is a row of one
    matrix product. Otherwise, PyTorch's convolution computes it. Supports neither dilation nor groups.
    """

    packed: PackedWeight | None  # of `rows_of_products`, set by packing.WeightPacker once the weight is loaded

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1, padding: int = 0
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding)
        self.packed = None

    def forward(self, x: Tensor) -> Tensor:
        """Convolve x, [batch, frames, channels]. Returns [batch, frames / stride, channels]."""
        packed = self.packed
        if packed is not None:
            return self._by_rows(x, lambda rows: packed.activated(rows, self.bias, "gelu"))
        product = PRODUCT_AND_GELU.serving(x)
        if product is None or self.bias is None or isinstance(self.padding, str):
            return F.gelu(super().forward(x.transpose(1, 2))).transpose(1, 2)
        return self.as_product(x, product)

    def as_product(self, x: Tensor, product: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
        """Compute `forward` by a kernel of PRODUCT_AND_GELU."""
        bias = self.bias
        assert bias is not None
        return self._by_rows(x, lambda rows: product(rows, self._rows, bias))

    def _by_rows(self, x: Tensor, product: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply `product` to [rows, size · in]: for each output frame, the concatenated input frames that it covers."""
        padding = self.padding
        assert not isinstance(padding, str)
        padded = F.pad(x, (0, 0, padding[0], padding[0]))
        frames = padded.unfold(1, self.kernel_size[0], self.stride[0]).transpose(2, 3)  # [batch, frames, size, in]
        return product(frames.flatten(2).flatten(0, 1)).view(len(x), -1, self.out_channels)

    @cached_property
    def _rows(self) -> Tensor:
        return rows_of_products(self.weight)


def rows_of_products(weight: Tensor) -> Tensor:
    """Return a convolution's weight [out, in, size] in the layout of products: [out, size · in]."""
    return weight.transpose(1, 2).flatten(1).contiguous()
