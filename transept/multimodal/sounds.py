"""Sound: a stretch of decoded samples at one rate. Decoders yield a recording as a series of sounds.

The rate or the channels may change within a recording, for example in joined files, so each sound has its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy.typing as npt

BLOCK_SAMPLES = 1 << 18  # decoded at a time, over all channels; 1 MiB of float32
SILENT_PEAK = 10 ** (-60 / 20)  # of full scale, 60 dB under it: dither and muted inputs stay below, speech does not


class Sound(NamedTuple):
    """samples: [channels, num_samples], as `channels_of` gives them. rate: in Hz."""

    samples: npt.NDArray[Any]
    rate: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.samples.shape[1] / self.rate


def sounds_at(rate: float, blocks: Iterable[npt.NDArray[Any]]) -> Iterator[Sound]:
    """Wrap blocks [channels, num_samples] at one rate, in Hz, as sounds."""
    return (Sound(block, rate) for block in blocks)


def silence(channels: int, num_samples: int, rate: float) -> Iterator[Sound]:
    """Yield digital silence block by block, so that any length takes the memory of one block."""
    import numpy as np  # not above: the command must start without it, to report a broken installation

    block = np.zeros((channels, min(num_samples, BLOCK_SAMPLES)), np.float32)
    for begin in range(0, num_samples, BLOCK_SAMPLES):
        yield Sound(block[:, : num_samples - begin], rate)
