"""Resample sounds at any rates to mono waveforms at one rate.

`transept.multimodal.audio` calls `joined`. FFmpeg's swresample resamples files, as in openai-whisper and
faster-whisper, whose samples of the same file equal ours rounded to 16 bits. soxr resamples arrays, as in librosa.
Nothing here decodes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import TypeAlias

import numpy as np
import soxr

from transept.errors import MediaError
from transept.multimodal.cancellation import MonoSound
from transept.multimodal.channels import Intake, joined_streams
from transept.multimodal.sounds import Sound
from transept.multimodal.waveforms import NO_SAMPLES, Waveform

LOWEST_RATE, HIGHEST_RATE = 1_000, 768_000  # Hz; beyond any recording: a broken header, or a swapped argument

# (mono blocks, their rate in Hz, the wanted one) -> mono blocks at the wanted one
Resampler: TypeAlias = Callable[[Iterable[Waveform], float, int], Iterator[Waveform]]


def joined(
    sounds: Iterable[Sound], sample_rate: int, name: str, intake: Intake, resampler: Resampler
) -> list[Waveform]:
    """Resample and join the sounds of one recording to the channels that the intake selects.

    Each waveform is float32 [num_samples], at `sample_rate`, in Hz. Raises MediaError for an impossible sample rate,
    for audio beyond the limits, and for a channel that does not exist.
    """
    streams = intake.streams(_checked(sounds, name), sample_rate, name)
    return joined_streams([_resampled(stream, sample_rate, resampler) for stream in streams])


def _checked(sounds: Iterable[Sound], name: str) -> Iterator[Sound]:
    """Yield the sounds. Raises MediaError for an impossible sample rate."""
    for sound in sounds:
        if not LOWEST_RATE <= sound.rate <= HIGHEST_RATE:
            raise MediaError(
                f"{name} has a sample rate of {sound.rate:g} Hz, which no recording has: it must be {LOWEST_RATE} to "
                f"{HIGHEST_RATE} Hz"
            )
        yield sound


def _resampled(stream: Iterable[MonoSound], sample_rate: int, resampler: Resampler) -> Iterator[Waveform]:
    """Resample a stream to one rate. Restarts the resampler when the stream's own rate changes."""
    for rate, run in itertools.groupby(stream, key=itemgetter(1)):
        blocks = map(itemgetter(0), run)
        yield from blocks if rate == sample_rate else resampler(blocks, rate, sample_rate)


def soxr_blocks(blocks: Iterable[Waveform], rate: float, sample_rate: int) -> Iterator[Waveform]:
    """Resampled by soxr's high quality, as by librosa.resample."""
    resampler = soxr.ResampleStream(rate, sample_rate, num_channels=1, dtype="float32", quality="HQ")
    for block in blocks:
        yield resampler.resample_chunk(np.ascontiguousarray(block))
    yield resampler.resample_chunk(NO_SAMPLES, last=True)


def swresample_blocks(blocks: Iterable[Waveform], rate: float, sample_rate: int) -> Iterator[Waveform]:
    """Resampled by FFmpeg with its defaults; in floats, where openai-whisper and faster-whisper round to 16 bits.

    rate: a whole number of Hz, as those of files are.
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
