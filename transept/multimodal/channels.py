"""Select the channels of a recording, all mixed, one of them, or each separately, and resample them to one rate.

`transept.multimodal.audio` reads a recording through an Intake, sound by sound, and `joined` makes waveforms of them.
FFmpeg's swresample resamples files, as in openai-whisper and faster-whisper, whose samples of the same file equal ours
rounded to 16 bits. soxr resamples arrays, as in librosa. Nothing here decodes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import TypeAlias

import numpy as np
import soxr

from transept.errors import MediaError, ParameterError
from transept.multimodal.audio_limits import AudioLimits
from transept.multimodal.cancellation import CancellingMix, MonoSound
from transept.multimodal.large_memory import GrowingSamples
from transept.multimodal.sounds import Sound
from transept.multimodal.waveforms import NO_SAMPLES, Waveform, mono

MIX, LEFT, RIGHT, EACH = CHANNELS = ("mix", "left", "right", "each")
NUMBERS = {LEFT: 0, RIGHT: 1}
LOWEST_RATE, HIGHEST_RATE = 1_000, 768_000  # Hz; beyond any recording: a broken header, or a swapped argument

# (mono blocks, their rate in Hz, the wanted one) -> mono blocks at the wanted one
Resampler: TypeAlias = Callable[[Iterable[Waveform], float, int], Iterator[Waveform]]
HIGHEST_PEAK = 16.0  # 24 dB over full scale: lossy codecs overshoot 1.0 a little, unscaled integers by far more


def one_channel(channel: str) -> str:
    """Return the channel if it is a single waveform. Raises ParameterError for any other."""
    if channel not in (MIX, LEFT, RIGHT):
        message = '{channel} must be "mix", "left" or "right" here, not {channel!}'
        raise ParameterError(message, param="channel", value=channel)
    return channel


def channel_names(count: int) -> list[str]:
    """Return channel names for a number of channels: left and right, or their numbers from 1."""
    return [LEFT, RIGHT] if count == 2 else [f"channel {number}" for number in range(1, count + 1)]


@dataclass(frozen=True)
class Intake(AudioLimits):
    """Limits, channels and audio track with which one recording is read.

    channel: one of CHANNELS. audio_track: see `load_audio`.
    begin: in a file that consists of several, seconds of the recording before the current one; num_channels: number of
    channels before it.
    warnings: faults of the recording, each with its time; readers append to it. other_tracks: see `LoadedAudio`;
    `media` fills it.
    """

    channel: str = MIX
    audio_track: int | str | None = None
    begin: float = 0.0
    num_channels: int | None = None
    warnings: list[str] = field(default_factory=list)
    other_tracks: list[str] = field(default_factory=list)

    def streams(self, sounds: Iterable[Sound], sample_rate: int, name: str) -> list[Iterator[MonoSound]]:
        """Return the selected channels, each as mono sounds, which are read on demand.

        Arguments: see `counted`. Raises MediaError like `counted`, and for a channel that does not exist.
        """
        sounds = self.counted(sounds, sample_rate, name, apart=self.channel == EACH, begin=self.begin)
        if self.channel == MIX:
            return [CancellingMix(self.begin, self.warnings).mixed(sounds)]
        first = next(sounds, None)
        if first is None:
            return [iter(())]
        count = self.num_channels or len(first.samples)
        sounds = itertools.chain([first], sounds)
        if self.channel in NUMBERS:
            return [map(partial(_channel, number=NUMBERS[self.channel], count=count, name=name), sounds)]
        if count == 1:
            message = f"{name} has one channel, so it cannot be split: leave {{channel='each'}} out"
            raise MediaError(message, param="channel", value=EACH)
        copies = itertools.tee(sounds, count)
        return [
            map(partial(_channel, number=number, count=count, name=name), copy) for number, copy in enumerate(copies)
        ]


def without_bursts(sounds: Iterable[Sound], intake: Intake) -> Iterator[Sound]:
    """Clip samples beyond HIGHEST_PEAK, which come from damage, to full scale, and warn of them."""
    num_clipped, seconds, first = 0, intake.begin, 0.0
    for sound in sounds:
        samples = sound.samples
        # False for NaN
        if not -HIGHEST_PEAK <= samples.min(initial=0) <= samples.max(initial=0) <= HIGHEST_PEAK:
            beyond = ~(np.abs(samples) <= HIGHEST_PEAK)
            first = first if num_clipped else seconds + int(beyond.any(axis=0).argmax()) / sound.rate
            num_clipped += int(beyond.sum())
            sound = sound._replace(samples=np.clip(np.nan_to_num(samples), -1.0, 1.0))
        seconds += sound.seconds
        yield sound
    if num_clipped:
        intake.warnings.append(
            f"damaged: {num_clipped} samples far over full scale were clipped, from {first:.1f} s on"
        )


def joined_streams(streams: Sequence[Iterator[Waveform]]) -> list[Waveform]:
    """Streams of mono blocks, read side by side, each joined to one waveform, float32 [num_samples]."""
    joined = [GrowingSamples() for _ in streams]
    for blocks in itertools.zip_longest(*streams):
        for samples, block in zip(joined, blocks, strict=True):
            if block is not None:
                samples.append(block)
    return [samples.array() for samples in joined]


def _channel(sound: Sound, number: int, count: int, name: str) -> MonoSound:
    """Return one channel of a sound. Raises MediaError if the recording does not have it.

    count: number of channels at the start of the recording. A later mono sound is used for each of them. If a later
    sound has several channels, but fewer, the missing ones are silent.
    """
    samples = sound.samples
    if number >= count:
        told = "one channel" if count == 1 else f"{count} channels"
        wanted = "it has no right one" if number == 1 else f"it has no channel {number + 1}"
        message = f"{name} has {told}, so {wanted}: leave {{channel}} out, and all are mixed"
        raise MediaError(message, param="channel")
    if number < len(samples) or len(samples) == 1:
        return mono(samples[number : number + 1] if number < len(samples) else samples), sound.rate
    return np.zeros(samples.shape[1], np.float32), sound.rate


def joined(
    sounds: Iterable[Sound], sample_rate: int, name: str, intake: Intake, resampler: Resampler
) -> list[Waveform]:
    """Resample and join the sounds of one recording to the channels that the intake selects.

    Each waveform is float32 [num_samples], at `sample_rate`, in Hz. Raises MediaError for an impossible sample rate,
    for audio beyond the limits, and for a channel that does not exist.
    """

    def checked() -> Iterator[Sound]:
        for sound in sounds:
            if not LOWEST_RATE <= sound.rate <= HIGHEST_RATE:
                raise MediaError(
                    f"{name} has a sample rate of {sound.rate:g} Hz, which no recording has: it must be {LOWEST_RATE} "
                    f"to {HIGHEST_RATE} Hz"
                )
            yield sound

    streams = intake.streams(checked(), sample_rate, name)
    return joined_streams([_resampled(stream, sample_rate, resampler) for stream in streams])


def _resampled(stream: Iterable[MonoSound], sample_rate: int, resampler: Resampler) -> Iterator[Waveform]:
    """Resample a stream to one rate. Restarts the resampler when the stream's own rate changes."""
    for rate, run in itertools.groupby(stream, key=itemgetter(1)):
        blocks = map(itemgetter(0), run)
        yield from blocks if rate == sample_rate else resampler(blocks, rate, sample_rate)


def soxr_blocks(blocks: Iterable[Waveform], rate: float, sample_rate: int) -> Iterator[Waveform]:
    """Resample with soxr's high quality, like librosa.resample."""
    resampler = soxr.ResampleStream(rate, sample_rate, num_channels=1, dtype="float32", quality="HQ")
    for block in blocks:
        yield resampler.resample_chunk(np.ascontiguousarray(block))
    yield resampler.resample_chunk(NO_SAMPLES, last=True)


def swresample_blocks(blocks: Iterable[Waveform], rate: float, sample_rate: int) -> Iterator[Waveform]:
    """Resample with FFmpeg's defaults; in floats, while openai-whisper and faster-whisper round to 16 bits.

    rate: in Hz, an integer, as in all files.
    """
    import av

    resampler = av.AudioResampler(format="fltp", layout="mono", rate=sample_rate)

    def frames() -> Iterator[av.AudioFrame | None]:
        for block in blocks:
            frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(block)[None], format="fltp", layout="mono")
            frame.sample_rate = int(rate)
            yield frame
        yield None  # the end

    for frame in frames():
        for resampled in resampler.resample(frame):
            yield resampled.to_ndarray()[0]
