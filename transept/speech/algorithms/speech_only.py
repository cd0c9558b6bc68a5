"""The VAD filter of sequential mode: silence is cut out of the recording, and the times are put back afterwards."""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections.abc import Generator, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np

from transept.core.jobs import Offload
from transept.errors import TranseptError
from transept.multimodal.audio import Waveform
from transept.speech.algorithms import sequential
from transept.speech.algorithms.language import Language
from transept.speech.events import Found
from transept.speech.options import TranscriptionOptions
from transept.speech.segments import Segment, Word
from transept.speech.speech_model import SpeechModel
from transept.speech.vad.spans import Span, speech_spans


def transcribe(
    model: SpeechModel, waveform: Waveform, options: TranscriptionOptions
) -> Generator[Any, Any, tuple[Language, list[Segment]]]:
    """A job: `sequential.transcribe` of what is spoken in the recording, with the recording's own times."""
    rate = model.spec.sample_rate
    spoken = yield Offload(partial(speech_spans, waveform, options.vad_options))
    spans = within_clips(spoken, options.clip_timestamps, rate, len(waveform))
    speech = np.concatenate([waveform[span.start : span.end] for span in spans] or [waveform[:0]])
    del waveform
    clock = Clock(spans, rate)
    job = sequential.transcribe(model, speech, dataclasses.replace(options, clip_timestamps=()))
    del speech
    answer: Any = None
    error: TranseptError | None = None
    try:
        while True:
            event = job.send(answer) if error is None else job.throw(error)
            if isinstance(event, Found):
                segments = [clock.restored(segment) for segment in event.segments]
                event = Found(segments, clock.time(event.progress_seconds, after_pause=False))
            answer = error = None
            try:
                answer = yield event
            except TranseptError as refusal:
                error = refusal
    except StopIteration as end:
        language, segments = end.value
        return language, [clock.restored(segment) for segment in segments]
    finally:
        job.close()


def within_clips(spans: Sequence[Span], clip_timestamps: Sequence[float], rate: int, num_samples: int) -> list[Span]:
    """The parts of spans that lie within the clips. clip_timestamps: seconds; the last end may be missing; (): all."""
    if not clip_timestamps:
        return list(spans)
    points = [round(time * rate) for time in clip_timestamps]
    if len(points) % 2:
        points.append(num_samples)
    cut = (
        Span(max(span.start, begin), min(span.end, end))
        for begin, end in zip(points[::2], points[1::2], strict=True)
        for span in spans
    )
    return [span for span in cut if span.start < span.end]


class Clock:
    """From times in a recording without its silence to times in the recording.

    spans: what was kept, in samples, rising. rate: samples in a second.
    """

    def __init__(self, spans: Sequence[Span], rate: int) -> None:
        self.spans = spans
        self.rate = rate
        self.begins = [0, *accumulate(span.end - span.start for span in spans)]  # samples, of each span once cut out

    def time(self, seconds: float, *, after_pause: bool) -> float:
        """The time in the recording; where a pause was cut out, the one after it or before it."""
        if not self.spans:
            return seconds
        position = seconds * self.rate
        index = bisect_right(self.begins, position) - 1
        if not after_pause and index and position == self.begins[index]:
            index -= 1
        index = min(index, len(self.spans) - 1)
        return round((self.spans[index].start + position - self.begins[index]) / self.rate, 2)

    def restored(self, segment: Segment) -> Segment:
        """A segment with the recording's times, its words with it; each word stays in one span."""
        if not segment.words:
            start, end = self.time(segment.start, after_pause=True), self.time(segment.end, after_pause=False)
            return dataclasses.replace(segment, start=start, end=max(start, end))
        words = [self._word(word) for word in segment.words]
        return dataclasses.replace(segment, start=words[0].start, end=words[-1].end, words=words)

    def _word(self, word: Word) -> Word:
        middle = (word.start + word.end) / 2
        shift = self.time(middle, after_pause=True) - middle
        return dataclasses.replace(word, start=round(word.start + shift, 2), end=round(word.end + shift, 2))
