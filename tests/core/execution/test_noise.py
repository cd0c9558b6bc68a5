"""Noise depends on its key and place alone, is the same by either way, and has the distribution it should."""

import numpy as np
import pytest
import torch

from transept.core.execution.noise import gumbel, keys_of, uniform_on
from transept.core.kernels.dispatch import UNIFORM

CPU = torch.device("cpu")
COUNT = 10_000  # more than the kernel takes at a time
MASK = 2**64 - 1


def split_mix(key: int, place: int) -> int:
    """A number of SplitMix64, in Python's integers."""
    bits = (key + place * 0x9E3779B97F4A7C15) & MASK
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB & MASK
    return bits ^ (bits >> 31)


@pytest.mark.parametrize("seed", [0, 1, 2**63, 2**64 - 1])
def test_both_ways_give_the_published_numbers(seed: int) -> None:
    keys = keys_of([(seed, 0, 3), (seed, 1, 3)])
    expected = [[split_mix(int(key), place) / 2**64 for place in range(1, COUNT + 1)] for key in keys]
    on_host = UNIFORM.only(keys, COUNT)
    assert torch.equal(on_host, uniform_on(keys, COUNT, CPU))
    np.testing.assert_allclose(on_host, np.float32(expected), rtol=1e-6)
    assert on_host.min() > 0.0
    assert on_host.max() < 1.0


def test_keys_differ_in_every_number_and_their_order() -> None:
    draws = [(seed, sample, position) for seed in range(20) for sample in range(20) for position in range(20)]
    assert len(set(keys_of(draws).tolist())) == len(draws)


def test_a_row_is_the_same_alone_and_beside_others() -> None:
    keys = keys_of([(seed,) for seed in range(5)])
    batched = gumbel(keys, COUNT, CPU)
    for row in range(5):
        assert torch.equal(gumbel(keys[row : row + 1], COUNT, CPU)[0], batched[row])


def test_noise_is_distributed_as_gumbel_s_and_rows_are_independent() -> None:
    noise = gumbel(keys_of([(7, 0, position) for position in range(64)]), COUNT, CPU)
    heights = torch.linspace(-2.0, 12.0, 100)
    below = torch.searchsorted(noise.flatten().sort().values, heights, right=True) / noise.numel()
    assert (below - torch.exp(-torch.exp(-heights))).abs().max() < 2 / noise.numel() ** 0.5
    correlation = torch.corrcoef(noise) - torch.eye(64)
    assert correlation.abs().max() < 5 / COUNT**0.5
