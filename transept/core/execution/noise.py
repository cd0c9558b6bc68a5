"""Random numbers that depend on a key and a place alone: the same on every device, in any batch, after preemption."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from transept.core.kernels.cpu.elementwise import uniform as kernel
from transept.core.kernels.cpu.elementwise.uniform import FIRST, LEAST, MOST, SECOND, STEP, Keys, mixed
from transept.core.transfer import upload


def keys_of(numbers: Sequence[tuple[int, ...]]) -> Keys:
    """A key for each tuple of numbers from 0 to 2^64 - 1, [tuples]; all tuples have as many."""
    keys = np.zeros(len(numbers), np.uint64)
    for column in np.array(numbers, np.uint64).T:
        keys = mixed(keys + (column + np.uint64(1)) * STEP)
    return keys


def gumbel(keys: Keys, count: int, device: torch.device) -> Tensor:
    """Standard Gumbel noise, float32 [keys, count]."""
    numbers = kernel.uniform(keys, count) if device.type == "cpu" else uniform(keys, count, device)
    return numbers.neg_().log1p_().neg_().log_().neg_()


def uniform(keys: Keys, count: int, device: torch.device) -> Tensor:
    """What the kernel gives, by PyTorch's operators, whose signed integers overflow as unsigned ones do."""
    step, first, second = (int(number.astype(np.int64)) for number in (STEP, FIRST, SECOND))
    bits = torch.arange(1, count + 1, device=device).mul_(step) + upload(keys.astype(np.int64), device)[:, None]
    bits.bitwise_xor_(_shifted(bits, 30)).mul_(first)
    bits.bitwise_xor_(_shifted(bits, 27)).mul_(second)
    bits.bitwise_xor_(_shifted(bits, 31))
    return _shifted(bits, 1).float().mul_(2.0**-63).clamp_(LEAST, MOST)


def _shifted(bits: Tensor, places: int) -> Tensor:
    """To the right, with zeros from the left."""
    return (bits >> places).bitwise_and_((1 << (64 - places)) - 1)
