"""Counter-based random numbers, functions of a key and an index: the same on every device and in any batch."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from transept.core.kernels.dispatch import UNIFORM
from transept.core.kernels.transfer import upload

# SplitMix64 (Steele, Lea and Flood 2014), as in kernels/cpu/elementwise/uniform.cpp.
STEP = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
LEAST, MOST = 2.0**-64, 1 - 2.0**-24  # neither 0 nor 1, even after rounding to float32

Keys = npt.NDArray[np.uint64]


def keys_of(numbers: Sequence[tuple[int, ...]]) -> Keys:
    """Return a key for each tuple of numbers from 0 to 2^64 - 1, [tuples]. All tuples have the same length."""
    keys = np.zeros(len(numbers), np.uint64)
    for column in np.array(numbers, np.uint64).T:
        keys = mixed(keys + (column + np.uint64(1)) * STEP)
    return keys


def number_of(tokens: Sequence[int]) -> int:
    """Return a number from 0 to 2^64 - 1 for a sequence of tokens, the same on every machine."""
    digest = hashlib.blake2b(np.array(tokens, "<i8").tobytes(), digest_size=8)
    return int.from_bytes(digest.digest(), "little")


def gumbel(keys: Keys, count: int, device: torch.device) -> Tensor:
    """Return standard Gumbel noise, float32 [keys, count]."""
    kernel = UNIFORM.find(device=device.type)
    numbers = uniform_on(keys, count, device) if kernel is None else kernel(keys, count)
    return numbers.neg_().log1p_().neg_().log_().neg_()


def mixed(bits: Keys) -> Keys:
    """Return pseudorandom integers, one for each integer (SplitMix64's mixing function)."""
    bits = (bits ^ (bits >> np.uint64(30))) * FIRST
    bits = (bits ^ (bits >> np.uint64(27))) * SECOND
    return bits ^ (bits >> np.uint64(31))


def uniform_on(keys: Keys, count: int, device: torch.device) -> Tensor:
    """Return the kernel's numbers, by PyTorch's operators; signed int64 wraps around as unsigned integers do."""
    step, first, second = (int(number.astype(np.int64)) for number in (STEP, FIRST, SECOND))
    bits = torch.arange(1, count + 1, device=device).mul_(step) + upload(keys.astype(np.int64), device)[:, None]
    bits.bitwise_xor_(_shifted(bits, 30)).mul_(first)
    bits.bitwise_xor_(_shifted(bits, 27)).mul_(second)
    bits.bitwise_xor_(_shifted(bits, 31))
    return _shifted(bits, 1).float().mul_(2.0**-63).clamp_(LEAST, MOST)


def _shifted(bits: Tensor, places: int) -> Tensor:
    """Shift right logically, filling with zeros."""
    return (bits >> places).bitwise_and_((1 << (64 - places)) - 1)
