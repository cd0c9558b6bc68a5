"""Memory for hours of audio: samples stay as they were appended, in a memory map where they are many."""

import mmap

import numpy as np
import pytest

from transept.multimodal.audio import load_audio
from transept.multimodal.large_memory import HAS_MREMAP, LARGE_BYTES, GrowingSamples, empty

LARGE = LARGE_BYTES // 4  # samples


def is_mapped(array: np.ndarray) -> bool:
    """Return True if an array, or the array that it is a view of, owns a memory map."""
    owner: object = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    owner = owner.obj if isinstance(owner, memoryview) else owner
    return isinstance(owner, mmap.mmap)


@pytest.mark.parametrize("num_samples", [0, 1, 1000, LARGE - 1, LARGE, 3 * LARGE + 17])
def test_samples_are_those_that_were_appended(num_samples: int) -> None:
    expected = np.random.default_rng(0).uniform(-1, 1, num_samples).astype(np.float32)
    samples = GrowingSamples()
    begin, sizes = 0, np.random.default_rng(1).integers(1, 1 << 18, 1 << 12)
    for size in sizes:
        samples.append(expected[begin : begin + size])
        begin += size
    assert begin >= num_samples
    assert np.array_equal(samples.array(), expected)
    assert is_mapped(samples.array()) == (HAS_MREMAP and num_samples >= LARGE)


def test_blocks_may_lie_in_memory_in_any_way() -> None:
    blocks = np.arange(3 * LARGE, dtype=np.float32).reshape(-1, 3).T  # rows that are not contiguous
    samples = GrowingSamples()
    for block in blocks:
        samples.append(block)
    assert np.array_equal(samples.array(), blocks.reshape(-1))


@pytest.mark.parametrize("shape", [(0,), (3, 5), (80, LARGE // 80 + 1)])
def test_an_empty_array_has_its_shape_and_may_be_written(shape: tuple[int, ...]) -> None:
    array = empty(shape)
    array[:] = 1
    assert (array.shape, array.dtype) == (shape, np.float32)
    assert is_mapped(array) == (array.nbytes >= LARGE_BYTES)


@pytest.mark.skipif(not HAS_MREMAP, reason="a map grows on Linux alone")
def test_a_long_recording_is_mapped() -> None:
    sound = (np.zeros(LARGE * 2, np.float32), 32_000)  # resampled to half as many
    assert is_mapped(load_audio(sound))
