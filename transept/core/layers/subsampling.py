"""Subsampling2d: convolutions over time and frequency, the first layers of Fast Conformer encoders."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from transept.core.layers.linear import Linear
from transept.errors import CheckpointError

KERNEL, STRIDE = 3, 2
FRAMES_AT_ONCE = 1024  # of the input: bounds the memory of the first convolution's output to about 33 MB


class Subsampling2d(nn.Module):
    """Convolutions that each halve time and frequency, then a linear layer (Rekesh et al. 2023, section 2).

    The first convolution is over all channels; each further one is depthwise, then pointwise; a ReLU follows each.
    Parameters: ``layers.0``, then ``layers.2`` and ``layers.3``, ``layers.5`` and ``layers.6``, ...; and ``linear``.

    num_bins: of the features. factor: by which time is shortened, a power of 2. bias: True if the convolutions have a
    bias. Raises CheckpointError for another factor.
    """

    def __init__(self, num_bins: int, hidden_size: int, channels: int, factor: int = 8) -> None:
        super().__init__()
        halvings = round(math.log2(factor)) if factor > 0 else 0
        if halvings < 1 or STRIDE**halvings != factor:
            raise CheckpointError(f"subsampling by {factor} is not supported: it must be a power of 2, from 2 on")
        self.factor = factor
        size = KERNEL, STRIDE, KERNEL // 2
        layers: list[nn.Module] = [nn.Conv2d(1, channels, *size), nn.ReLU(inplace=True)]
        for _ in range(halvings - 1):
            layers += [nn.Conv2d(channels, channels, *size, groups=channels), nn.Conv2d(channels, channels, 1)]
            layers.append(nn.ReLU(inplace=True))
        self.layers = nn.Sequential(*layers)
        self.linear = Linear(channels * self.num_tokens(num_bins, factor), hidden_size)

    @staticmethod
    def num_tokens(num_frames: int, factor: int = 8) -> int:
        """Return the number of encoder tokens of frames."""
        return -(-num_frames // factor)

    def forward(self, features: list[Tensor]) -> Tensor:
        """features: each input's [frames, bins]. Returns [encoder_tokens, hidden]."""
        return self.linear(torch.cat([self._convolved(each) for each in features]))

    def _convolved(self, features: Tensor) -> Tensor:
        """Return one input's [encoder_tokens, channels · bins / factor]."""
        features, parts = features.to(self.linear.weight.dtype), []
        margin = STRIDE * self.factor  # frames: a multiple of the factor that no token beyond it reads
        for first in range(0, len(features), FRAMES_AT_ONCE):
            begin, end = max(0, first - margin), first + FRAMES_AT_ONCE
            hidden = self.layers(features[None, None, begin : end + margin])
            tokens = slice(
                (first - begin) // self.factor, self.num_tokens(min(end, len(features)) - begin, self.factor)
            )
            parts.append(hidden[0, :, tokens].transpose(0, 1).flatten(1))
        return torch.cat(parts)
