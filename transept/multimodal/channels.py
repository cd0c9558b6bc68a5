"""Which channels of a recording are wanted: all mixed, one of them, or each by itself.

`transept.multimodal.audio` reads a recording through an Intake, sound by sound. Nothing here decodes or resamples.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeAlias

import numpy as np

from transept.errors import MediaError, ParameterError, shown
from transept.multimodal.audio_limits import AudioLimits
from transept.multimodal.large_memory import GrowingSamples
from transept.multimodal.sounds import SILENT_PEAK, Sound
from transept.multimodal.waveforms import Waveform, mono

MIX, LEFT, RIGHT, EACH = CHANNELS = ("mix", "left", "right", "each")
NUMBERS = {LEFT: 0, RIGHT: 1}
CANCELLED = 0.05  # power of the mix over the mean power of two channels; 1: alike, 0.5: unrelated, 0: opposite
SHORTEST_JUDGED = 0.1  # seconds; what cancels in less tells nothing of the recording

MonoSound: TypeAlias = "tuple[Waveform, float]"  # [num_samples], and its rate in Hz


def one_channel(channel: str) -> str:
    """Return the channel if it is a single waveform. Raises ParameterError for any other."""
    if channel not in (MIX, LEFT, RIGHT):
        raise ParameterError(f'channel must be "mix", "left" or "right" here, not {shown(channel)}')
    return channel


def channel_names(count: int) -> list[str]:
    """Return the names of so many channels: left and right, or their numbers from 1."""
    return [LEFT, RIGHT] if count == 2 else [f"channel {number}" for number in range(1, count + 1)]


@dataclass(frozen=True)
class Intake(AudioLimits):
    """One recording as it is taken in: within the limits, some of its channels, and one of its tracks.

    channel: one of CHANNELS. audio_track: see `load_audio`.
    begin: seconds of the recording that came before, in a file that others are joined to; num_channels: those that
    are known from there.
    warnings: faults of the recording, each with its time; readers append to it.
    """

    channel: str = MIX
    audio_track: int | str | None = None
    begin: float = 0.0
    num_channels: int | None = None
    warnings: list[str] = field(default_factory=list)

    def streams(self, sounds: Iterable[Sound], sample_rate: int, name: str) -> list[Iterator[MonoSound]]:
        """The channels that are wanted, each as mono sounds; the sounds are read as they are.

        The arguments are those of `counted`. Raises MediaError as that does, and for a channel that is not there.
        """
        sounds = self.counted(sounds, sample_rate, name, apart=self.channel == EACH, begin=self.begin)
        if self.channel == MIX:
            return [self._mixed(sounds)]
        first = next(sounds, None)
        if first is None:
            return [iter(())]
        count = self.num_channels or len(first.samples)
        sounds = itertools.chain([first], sounds)
        if self.channel in NUMBERS:
            return [map(partial(_channel, number=NUMBERS[self.channel], count=count, name=name), sounds)]
        if count == 1:
            raise MediaError(f'{name} has one channel, so there are none to tell apart: leave channel="each" out')
        copies = itertools.tee(sounds, count)
        return [
            map(partial(_channel, number=number, count=count, name=name), copy) for number, copy in enumerate(copies)
        ]

    def _mixed(self, sounds: Iterable[Sound]) -> Iterator[MonoSound]:
        """The mean of all channels, or the first of two that cancel each other; then a warning."""
        seconds, cancelled_from = self.begin, None
        for sound in sounds:
            mixed = mono(sound.samples)
            is_long = sound.seconds >= SHORTEST_JUDGED
            if is_long and len(sound.samples) == 2 and _cancel(mono(sound.samples[:1]), mixed):
                cancelled_from = seconds if cancelled_from is None else cancelled_from
                mixed = mono(sound.samples[:1])
            seconds += sound.seconds
            yield mixed, sound.rate
        if cancelled_from is not None:
            self.warnings.append(
                "heard through its left channel where the two cancel each other in the mix, from "
                f"{cancelled_from:.1f} s on"
            )


def joined_streams(streams: Sequence[Iterator[Waveform]]) -> list[Waveform]:
    """Streams of mono blocks, read side by side, each joined to one waveform, float32 [num_samples]."""
    joined = [GrowingSamples() for _ in streams]
    for blocks in itertools.zip_longest(*streams):
        for samples, block in zip(joined, blocks, strict=True):
            if block is not None:
                samples.append(block)
    return [samples.array() for samples in joined]


def _cancel(left: Waveform, mixed: Waveform) -> bool:
    """True if two channels are so nearly each other's opposites that the mix loses what they hold.

    Equal powers of correlation r leave (1 + r) / 2 of their power in the mix; below CANCELLED r is under -0.9.
    """
    power = float(np.dot(left, left)) / left.size
    if not power > SILENT_PEAK**2:
        return False
    right = 2 * mixed - left
    mean = (power + float(np.dot(right, right)) / left.size) / 2
    return float(np.dot(mixed, mixed)) / left.size < CANCELLED * mean


def _channel(sound: Sound, number: int, count: int, name: str) -> MonoSound:
    """One channel of a sound. Raises MediaError where the recording does not have it.

    count: channels that the recording began with. A later mono sound stands for each of them; of several channels that
    are fewer, those that are missing are silent.
    """
    samples = sound.samples
    if number >= count:
        told = "one channel" if count == 1 else f"{count} channels"
        wanted = "there is no right one" if number == 1 else f"there is no channel {number + 1}"
        raise MediaError(f"{name} has {told}, so {wanted}: leave the channel out, and all are mixed")
    if number < len(samples) or len(samples) == 1:
        return mono(samples[number : number + 1] if number < len(samples) else samples), sound.rate
    return np.zeros(samples.shape[1], np.float32), sound.rate
