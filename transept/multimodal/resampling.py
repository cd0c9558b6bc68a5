"""Sounds at any rates to mono waveforms at the rate that is wanted.

`transept.multimodal.audio` calls `joined`. Files are resampled by FFmpeg's swresample, which is what openai-whisper and
faster-whisper hear them through: from the same file their samples are ours, rounded to 16 bits. Samples that a program
holds are resampled by soxr, as librosa does it. Nothing here decodes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import TypeAlias

import numpy as np
import soxr

from transept.errors import MediaError
from transept.multimodal.channels import Intake, MonoSound, joined_streams
from transept.multimodal.sounds import Sound
from transept.multimodal.waveforms import NO_SAMPLES, Waveform

LOWEST_RATE, HIGHEST_RATE = 1_000, 768_000  # Hz; beyond any recording: a broken header, or a swapped argument

# (mono blocks, their rate in Hz, the wanted one) -> mono blocks at the wanted one
Resampler: TypeAlias = Callable[[Iterable[Waveform], float, int], Iterator[Waveform]]


def joined(
    sounds: Iterable[Sound], sample_rate: int, name: str, intake: Intake, resampler: Resampler
) -> list[Waveform]:
    """Join the sounds of one recording, resampled on the way, to the channels that the intake wants.

    Each of the waveforms is float32 [num_samples], at `sample_rate`, in Hz. Raises MediaError for a rate that no
    recording has, for what is beyond the limits, and for a channel that is not there.
    """
    streams = intake.streams(_checked(sounds, name), sample_rate, name)
    return joined_streams([_resampled(stream, sample_rate, resampler) for stream in streams])


def _checked(sounds: Iterable[Sound], name: str) -> Iterator[Sound]:
    """The sounds. Raises MediaError for a rate that no recording has."""
    for sound in sounds:
        if not LOWEST_RATE <= sound.rate <= HIGHEST_RATE:
            raise MediaError(
                f"{name} has a sample rate of {sound.rate:g} Hz, which no recording has: it must be {LOWEST_RATE} to "
                f"{HIGHEST_RATE} Hz"
            )
        yield sound


def _resampled(stream: Iterable[MonoSound], sample_rate: int, resampler: Resampler) -> Iterator[Waveform]:
    """A stream at one rate. Where its own changes, resampling begins anew."""
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
