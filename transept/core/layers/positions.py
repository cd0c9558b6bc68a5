"""Tables of positions that models compute rather than learn."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F


def fairseq_sinusoids(num_positions: int, width: int, padding_id: int) -> Tensor:
    """Return fairseq's sinusoidal positions: all sines before all cosines (Vaswani et al. 2017, section 3.5).

    Row ``padding_id + 1`` is position 0. Row padding_id, of the padding token, is zeros.
    Returns [padding_id + 1 + num_positions, width] in PyTorch's default dtype, for a model's non-persistent buffer.
    """
    half = width // 2
    frequencies = torch.exp(torch.arange(half, dtype=torch.float32) * -(math.log(10000.0) / (half - 1)))
    angles = torch.arange(padding_id + 1 + num_positions, dtype=torch.float32)[:, None] * frequencies
    table = F.pad(torch.cat([angles.sin(), angles.cos()], dim=1), (0, width % 2))
    table[padding_id] = 0
    return table.to(torch.get_default_dtype())
