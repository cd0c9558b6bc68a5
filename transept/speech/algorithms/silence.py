"""Recordings without their silence: one waveform for sequential mode, or the windows of batched mode.

`transept.speech.recording` calls these functions in another thread, because they read the whole recording.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from transept.multimodal.large_memory import empty
from transept.multimodal.waveforms import Waveform
from transept.speech.algorithms.second_hearing import Stretch, known_within
from transept.speech.options import TranscriptionOptions
from transept.speech.speech_model import SpeechModel
from transept.speech.timing.timeline import Timeline
from transept.speech.vad.spans import BATCHED_MIN_SILENCE_MS, SAMPLE_RATE, Span, pack, padded, speech_spans


def speech_only(waveform: Waveform, rate: int, options: TranscriptionOptions) -> tuple[Waveform, Timeline]:
    """Return the speech within clip_timestamps, joined, and a map from its times to the recording's.

    waveform: float32 [samples]. rate: in Hz.
    """
    spoken, clips = speech_spans(waveform, options.vad_options), options.clips(len(waveform), rate)
    cut = [Span(max(span.start, begin), min(span.end, end)) for begin, end in clips for span in spoken]
    spans = [span for span in cut if span.start < span.end]
    return _joined(waveform, spans), Timeline(spans, rate)


@dataclass(frozen=True)
class Part:
    """Speech that is decoded in one piece.

    recording: all of it, float32 [samples]. spans: samples at which someone speaks. kept: the stretches of the
    recording that are joined and decoded, with some of the silence around the spans. prefix: how the text begins.
    """

    recording: Waveform = field(repr=False, compare=False)
    spans: tuple[Span, ...]
    kept: tuple[Span, ...]
    prefix: str | None

    @property
    def limits(self) -> tuple[float, float]:
        """Start of the first and end of the last speech in the recording, in seconds."""
        return self.kept[0].start / SAMPLE_RATE, self.kept[-1].end / SAMPLE_RATE

    def sound(self) -> Waveform:
        """Return the kept spans, joined: float32 [samples]."""
        return _joined(self.recording, self.kept)


def num_kept(parts: Sequence[Part]) -> int:
    """Return the number of samples that are decoded."""
    return sum(span.end - span.start for part in parts for span in part.kept)


@dataclass(frozen=True)
class SpokenWindow(Part):
    """Stretches of speech that are decoded as one, at most the model's window together; one of `kept` for each span."""

    @cached_property
    def timeline(self) -> Timeline:
        """Map from times in the window to times in the recording."""
        return Timeline(self.kept, SAMPLE_RATE)

    @cached_property
    def stretches(self) -> list[Stretch]:
        """Stretches of long speech; pauses of up to SHORT_PAUSE count as speech."""
        return known_within(self.spans, (0.0, math.inf))

    def of(self, indices: range) -> SpokenWindow:
        """Return the window of some adjacent spans. indices: of the spans."""
        own = slice(indices.start, indices.stop)
        return dataclasses.replace(
            self, spans=self.spans[own], kept=self.kept[own], prefix=None if indices.start else self.prefix
        )

    def part(self, stretch: Stretch) -> SpokenWindow:
        """Return the window of the spans whose middle is in a stretch, or this window if no span matches."""
        begin, end = stretch
        inside = [
            index for index, span in enumerate(self.spans) if begin <= (span.start + span.end) / 2 / SAMPLE_RATE <= end
        ]
        return self.of(range(inside[0], inside[-1] + 1)) if inside else self


def spoken_windows(model: SpeechModel, waveform: Waveform, options: TranscriptionOptions) -> list[SpokenWindow]:
    """Return the windows of a recording, in order of time. A window never spans two stretches of clip_timestamps.

    waveform: float32 [samples] at 16 kHz.
    """
    frame = SAMPLE_RATE // model.fps  # samples
    room = model.chunk_frames(options) * frame  # samples
    given, min_silence = options.vad_options, options.vad_options.min_silence_duration_ms
    pad = min(round(given.speech_pad_ms * SAMPLE_RATE / 1000), room // 4)  # samples
    vad_options = dataclasses.replace(
        given,
        min_silence_duration_ms=BATCHED_MIN_SILENCE_MS if min_silence is None else min_silence,
        max_speech_duration_s=min(given.max_speech_duration_s, (room - 2 * pad) / SAMPLE_RATE),
        speech_pad_ms=0,
    )
    windows: list[SpokenWindow] = []
    for begin, end in options.clips(len(waveform) // frame, model.fps):
        clip = waveform[begin * frame : end * frame]
        spans = speech_spans(clip, vad_options)
        kept = padded(spans, pad, len(clip))
        for first, last in pack(spans, kept, room):
            own, around = (
                tuple(Span(start + begin * frame, stop + begin * frame) for start, stop in each[first:last])
                for each in (spans, kept)
            )
            windows.append(SpokenWindow(waveform, own, around, None if windows else options.prefix))
    return windows


def _joined(waveform: Waveform, spans: Sequence[Span]) -> Waveform:
    if len(spans) == 1:
        return waveform[spans[0].start : spans[0].end]
    joined = empty((sum(span.end - span.start for span in spans),))
    return np.concatenate([waveform[span.start : span.end] for span in spans], out=joined) if spans else joined
