"""Which channels of a recording are wanted: all mixed, one of them, or each by itself.

`transept.multimodal.audio` reads a recording through an Intake, block by block. Nothing here decodes or resamples.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy.typing as npt

from transept.errors import MediaError, ParameterError, shown
from transept.multimodal.audio_limits import AudioLimits
from transept.multimodal.large_memory import GrowingSamples
from transept.multimodal.waveforms import Waveform, mono

MIX, LEFT, RIGHT, EACH = CHANNELS = ("mix", "left", "right", "each")
NUMBERS = {LEFT: 0, RIGHT: 1}


def one_channel(channel: str) -> str:
    """What is wanted of a recording, where that is one waveform. Raises ParameterError for anything else."""
    if channel not in (MIX, LEFT, RIGHT):
        raise ParameterError(f'channel must be "mix", "left" or "right" here, not {shown(channel)}')
    return channel


def channel_names(count: int) -> list[str]:
    """What so many channels are called: left and right, or by their numbers from 1."""
    return [LEFT, RIGHT] if count == 2 else [f"channel {number}" for number in range(1, count + 1)]


@dataclass(frozen=True)
class Intake(AudioLimits):
    """What is taken in of a recording: within the limits, these channels. channel: one of CHANNELS."""

    channel: str = MIX

    def streams(
        self, blocks: Iterable[npt.NDArray[Any]], rate: float, sample_rate: int, name: str
    ) -> list[Iterator[Waveform]]:
        """The channels that are wanted, each as mono blocks, of one signal; its blocks are read as they are.

        The arguments are those of `counted`. Raises MediaError as that does, and for a channel that is not there.
        """
        blocks = self.counted(blocks, rate, sample_rate, name, apart=self.channel == EACH)
        if self.channel == MIX:
            return [map(mono, blocks)]
        if self.channel in NUMBERS:
            return [map(partial(_channel, number=NUMBERS[self.channel], name=name), blocks)]
        first = next(blocks, None)
        if first is None:
            return [iter(())]
        if len(first) == 1:
            raise MediaError(f'{name} has one channel, so there are none to tell apart: leave channel="each" out')
        copies = itertools.tee(itertools.chain([first], blocks), len(first))
        return [map(partial(_channel, number=number, name=name), copy) for number, copy in enumerate(copies)]


def joined_streams(streams: Sequence[Iterator[Waveform]]) -> list[Waveform]:
    """Streams of mono blocks, read side by side, each joined to one waveform, float32 [num_samples]."""
    joined = [GrowingSamples() for _ in streams]
    for blocks in itertools.zip_longest(*streams):
        for samples, block in zip(joined, blocks, strict=True):
            if block is not None:
                samples.append(block)
    return [samples.array() for samples in joined]


def _channel(block: npt.NDArray[Any], number: int, name: str) -> Waveform:
    """One channel of [channels, num_samples], [num_samples] float32. Raises MediaError where it is not there."""
    if number >= len(block):
        count = "one channel" if len(block) == 1 else f"{len(block)} channels"
        wanted = "there is no right one" if number == 1 else f"there is no channel {number + 1}"
        raise MediaError(f"{name} has {count}, so {wanted}: leave the channel out, and all are mixed")
    return mono(block[number : number + 1])
