"""Convolutions over time, as encoders of sound begin with them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from torch import Tensor, nn
from torch.nn import functional as F

from transept.core.kernels.dispatch import PRODUCT_AND_GELU


class GeluConv1d(nn.Conv1d):
    """``gelu(conv1d(x))``, as the first layers of encoders of sound.

    Where a kernel multiplies, adds a bias and applies GELU, every output frame is a row of one product; elsewhere
    PyTorch's convolution computes it. Neither dilation nor groups.
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1, padding: int = 0
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding)

    def forward(self, x: Tensor) -> Tensor:
        """x: [batch, frames, channels]. Returns [batch, frames / stride, channels]."""
        product = PRODUCT_AND_GELU.serving(x)
        if product is None or self.bias is None or isinstance(self.padding, str):
            return F.gelu(super().forward(x.transpose(1, 2))).transpose(1, 2)
        return self.as_product(x, product)

    def as_product(self, x: Tensor, product: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
        """The same by a kernel of PRODUCT_AND_GELU."""
        padding = self.padding
        assert not isinstance(padding, str)
        assert self.bias is not None
        padded = F.pad(x, (0, 0, padding[0], padding[0]))
        frames = padded.unfold(1, self.kernel_size[0], self.stride[0]).transpose(2, 3)  # [batch, frames, size, in]
        out = product(frames.reshape(-1, self._rows.shape[1]), self._rows, self.bias)
        return out.view(len(x), -1, self.out_channels)

    @cached_property
    def _rows(self) -> Tensor:
        """The weight as products read it: [out, size · in], in the order of the input's frames and channels."""
        return self.weight.transpose(1, 2).flatten(1).contiguous()
