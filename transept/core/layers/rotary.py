"""Rotary positions (Su et al. 2021): queries and keys are rotated by angles that grow with their position.

Called by self-attention before keys are cached, so that a cached key is never rotated again.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from transept.errors import CheckpointError


def check_rotary(theta: float, head_dim: int) -> None:
    """Raise CheckpointError for a theta that is not a number above 0, and for heads of an odd size."""
    if isinstance(theta, bool) or not isinstance(theta, int | float) or not 0 < theta < math.inf:
        raise CheckpointError(f"the theta of rotary positions must be a number above 0, not {theta!r}")
    if head_dim % 2:
        raise CheckpointError(f"rotary positions need heads of an even size, and these have {head_dim} dimensions")


def rotate(query: Tensor, key: Tensor, positions: Tensor, theta: float) -> tuple[Tensor, Tensor]:
    """Rotate element i of a head's first half with element i of the second half, as in Llama and Gemma.

    query, key: [tokens, heads, head_dim], with any number of heads each. positions: [tokens]. Pair i of a head is
    rotated by ``position / theta^(2i / head_dim)``, computed in float32. Returns both, in their shapes and dtypes.
    """
    head_dim = query.shape[-1]
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32, device=positions.device) / head_dim
    angles = positions[:, None, None].float() * (1.0 / theta**exponents)  # [tokens, 1, head_dim / 2]
    cosine, sine = angles.cos().to(query.dtype), angles.sin().to(query.dtype)
    return _rotated(query, cosine, sine), _rotated(key, cosine, sine)


def _rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)
