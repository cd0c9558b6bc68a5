"""Auto mode: passages of one or two minutes, decoded side by side, each with the sequential algorithm.

Long silence makes a model lose and invent speech, and speech without its pauses makes it mishear. So auto mode leaves
out silence of two seconds or more, keeps shorter pauses, and divides the rest at long pauses into passages. Within a
passage each window has the previous text as its prompt. Speech that no segment covers is decoded again on its own.
`transept.speech.recording` calls `spoken_passages`, then `decode_passages`.
"""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_left, bisect_right
from collections.abc import Generator, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from transept.core.jobs.job import Gather, Offload
from transept.multimodal.waveforms import Waveform
from transept.speech.algorithms import sequential
from transept.speech.algorithms.second_hearing import Heard, known_within
from transept.speech.algorithms.segmentation import TOLERANCE
from transept.speech.algorithms.silence import Part
from transept.speech.algorithms.source import Source
from transept.speech.options import TranscriptionOptions
from transept.speech.segments import Segment
from transept.speech.speech_model import SpeechModel
from transept.speech.timing.aligned import word_times
from transept.speech.timing.timeline import Timeline
from transept.speech.vad.options import VadOptions
from transept.speech.vad.spans import BATCHED_MIN_SILENCE_MS, FILTER_MIN_SILENCE_MS, SAMPLE_RATE, Span, speech_spans

LONGEST_PASSAGE = 120.0  # seconds
LONGEST_SPAN = 30.0  # seconds of speech without a pause; longer spans are cut at their quietest place
SLACK = 0.25  # fraction of a passage's length by which its end may move to reach a longer pause
PAUSE = 1.0  # seconds of silence within a segment; a bit of speech beyond it belongs to the neighbouring segment
LEAD = 0.1  # seconds by which a word may begin before the speech that voice activity detection found


class Passage(Part):
    """A passage of one or two minutes."""

    def cuts(self) -> tuple[float, ...]:
        """Return the seconds in `sound` at which one part ends and the next begins."""
        return tuple(samples / SAMPLE_RATE for samples in accumulate(span.end - span.start for span in self.kept[:-1]))

    def spoken(self) -> list[Span]:
        """Return the spans of speech in samples of `sound`."""
        begins = [0, *accumulate(span.end - span.start for span in self.kept)]
        starts = [span.start for span in self.kept]
        found = []
        for span in self.spans:
            index = max(bisect_right(starts, span.start) - 1, 0)
            shift = begins[index] - starts[index]
            found.append(Span(span.start + shift, span.end + shift))
        return found


class PassageTimeline(Timeline):
    """Map the times of a passage's segments to the recording, within the passage and not before their first speech.

    A model's timestamps count the silence before a sentence as part of it, and cross-attention counts the silence
    before a word as part of the word. Models round up the end of the last sentence.
    """

    def __init__(self, passage: Passage, fps: int) -> None:
        super().__init__(passage.kept, SAMPLE_RATE)
        self.fps = fps
        self.speech = [(span.start / SAMPLE_RATE, span.end / SAMPLE_RATE) for span in passage.spans]
        self.starts, self.ends = ([span[side] for span in self.speech] for side in (0, 1))
        self.last = round(passage.kept[-1].end / SAMPLE_RATE, 2)

    def restored(self, segment: Segment) -> Segment:
        """Return the segment, and its seek, in the recording's time."""
        segment = super().restored(segment)
        seek = round(self.time(segment.seek / self.fps, after_pause=True) * self.fps)
        words = segment.words and [
            dataclasses.replace(word, start=self._sounding(word.start, word.end), end=min(word.end, self.last))
            for word in segment.words
        ]
        start, end = segment.start, min(segment.end, self.last)
        if words:
            start = words[0].start
        else:
            start, end = self._sounding(self._after_pause(start, end), end), self._before_pause(start, end)
        return dataclasses.replace(segment, seek=seek, start=start, end=end, words=words)

    def _sounding(self, start: float, end: float) -> float:
        """Move a start in silence to the next speech before `end`; keep it if no speech follows."""
        index = bisect_right(self.ends, start)
        if index == len(self.speech) or self.speech[index][0] >= end:
            return start
        return max(start, round(self.speech[index][0] - LEAD, 2))

    def _after_pause(self, start: float, end: float) -> float:
        """Move a start after the pause if the segment begins with the last bit of the speech before that pause."""
        index = bisect_right(self.ends, start)
        if index + 1 >= len(self.speech):
            return start
        (begin, stop), (following, _) = self.speech[index : index + 2]
        is_rest = stop - start <= min(TOLERANCE, start - begin)
        return stop if is_rest and following - stop >= PAUSE and following < end else start

    def _before_pause(self, start: float, end: float) -> float:
        """Move an end before the pause if the segment ends in it or with the first bit of the speech after it."""
        index = bisect_left(self.starts, end)  # of the first speech after the end
        if index and end - self.starts[index - 1] <= min(TOLERANCE, self.ends[index - 1] - end):
            index -= 1
        if index == 0 or index == len(self.speech) or self.starts[index] - self.ends[index - 1] < PAUSE:
            return end
        stop = self.ends[index - 1]
        return min(end, round(stop + TOLERANCE, 2)) if stop > start else end


def spoken_passages(model: SpeechModel, waveform: Waveform, options: TranscriptionOptions) -> list[Passage]:
    """Return the passages of a recording, in order of time. A passage never spans two stretches of clip_timestamps.

    waveform: float32 [samples] at 16 kHz.
    """
    given = options.vad_options
    long_silence = given.min_silence_duration_ms
    silence = round((FILTER_MIN_SILENCE_MS if long_silence is None else long_silence) * SAMPLE_RATE / 1000)
    pad = min(round(given.speech_pad_ms * SAMPLE_RATE / 1000), silence // 2)
    fine = dataclasses.replace(
        given,
        min_silence_duration_ms=BATCHED_MIN_SILENCE_MS,
        max_speech_duration_s=min(given.max_speech_duration_s, LONGEST_SPAN),
        speech_pad_ms=0,
    )
    frame = SAMPLE_RATE // model.fps
    found: list[Passage] = []
    for begin, end in options.clips(len(waveform) // frame, model.fps):
        first, last = begin * frame, len(waveform) if end == len(waveform) // frame else end * frame
        spans = [Span(s + first, e + first) for s, e in _loud_and_quiet(waveform[first:last], fine, silence)]
        for own, kept in _divided(spans, Span(first, last), silence, pad):
            found.append(Passage(waveform, tuple(own), tuple(kept), None if found else options.prefix))
    return found


def without_silence(model: SpeechModel, waveform: Waveform, options: TranscriptionOptions) -> Waveform:
    """Return a recording without its long silence, or all of it if it has no speech.

    waveform: float32 [samples] at 16 kHz.
    """
    parts = [passage.sound() for passage in spoken_passages(model, waveform, options)]
    return np.concatenate(parts) if parts else waveform


def decode_passages(source: Source, passages: Sequence[Passage]) -> Generator[Any, Any, Heard]:
    """A job that decodes all passages of a recording. source: the first passage."""
    jobs = (_decoded(source, passage, is_first=passage is passages[0]) for passage in passages)
    heard = yield Gather(jobs, max_jobs=source.options.batch_size)
    return Heard.joined(heard)


def _decoded(source: Source, passage: Passage, is_first: bool) -> Generator[Any, Any, Heard]:
    sound = passage.sound()
    own = dataclasses.replace(
        source,
        waveform=sound,
        features=source.features if is_first else (yield Offload(partial(source.model.features, sound))),
        options=dataclasses.replace(source.options, clip_timestamps=(), prefix=passage.prefix),
        speech=passage.spoken(),
        cuts=passage.cuts(),
    )

    def refine(segments: list[Segment], earliest: float) -> Generator[Any, Any, list[Segment]]:
        begin, end = passage.limits
        limits = (max(begin, earliest), end)
        return (yield from word_times(segments, passage.recording, limits, own.aligner, own.language))

    return (yield from sequential.transcribe(own, PassageTimeline(passage, source.model.fps), refine))


def _loud_and_quiet(waveform: Waveform, options: VadOptions, silence: int) -> list[Span]:
    """Return the spans of speech, including quiet speech that voice activity detection misses after loud speech.

    The detector's state depends on earlier audio. So each pause of at least `silence` samples is searched again on its
    own. Speech found there counts if it is long enough for `missed_speech`.
    """
    spans = speech_spans(waveform, options)
    found: list[Span] = []
    for span, after in pairwise([*spans, Span(len(waveform), len(waveform))]):
        found.append(span)
        pause = waveform[span.end : after.start]
        if len(pause) < silence:
            continue
        quiet = speech_spans(pause, options)
        for begin, end in known_within(quiet, (0.0, len(pause) / SAMPLE_RATE)):
            inside = [each for each in quiet if begin <= each.start / SAMPLE_RATE < end]
            found += [Span(each.start + span.end, each.end + span.end) for each in inside]
    return found


def _divided(spans: Sequence[Span], clip: Span, silence: int, pad: int) -> list[tuple[list[Span], list[Span]]]:
    """Divide speech into passages of up to LONGEST_PASSAGE, each with the parts of the recording to keep.

    spans: rising, within `clip`. silence: a pause of at least so many samples is left out, except for `pad` samples at
    each end.
    """
    found = []
    lengths = [(span.end - span.start) / SAMPLE_RATE for span in spans]
    pauses = [(after.start - span.end) / SAMPLE_RATE for span, after in pairwise(spans)]
    kept_pauses = [pause if pause * SAMPLE_RATE < silence else 2 * pad / SAMPLE_RATE for pause in pauses]
    first = 0
    while first < len(spans):
        after = _end_of_passage(lengths[first:], pauses[first:], kept_pauses[first:]) + first
        own = list(spans[first:after])
        begin = _edge(spans[first - 1].end if first else clip.start, own[0].start, silence, pad, bool(first))
        end = _edge(
            spans[after].start if after < len(spans) else clip.end, own[-1].end, silence, pad, after < len(spans)
        )
        kept = [Span(begin, own[0].end)]
        for span in own[1:]:
            if span.start - kept[-1].end < silence:
                kept[-1] = Span(kept[-1].start, span.end)
            else:
                kept[-1] = Span(kept[-1].start, kept[-1].end + pad)
                kept.append(Span(span.start - pad, span.end))
        kept[-1] = Span(kept[-1].start, end)
        found.append((own, kept))
        first = after
    return found


def _edge(far: int, near: int, silence: int, pad: int, is_shared: bool) -> int:
    """Return the sample at which a passage begins or ends.

    near: the edge of the passage's speech. far: the edge of the neighbouring passage's speech, with which the passage
    shares the pause (is_shared), or the edge of the clip.
    """
    if abs(far - near) >= silence:
        return near + (pad if far > near else -pad)
    return (far + near) // 2 if is_shared else far


def _end_of_passage(lengths: Sequence[float], pauses: Sequence[float], kept_pauses: Sequence[float]) -> int:
    """Return the number of spans in the first passage: all, or those before the longest pause near its intended length.

    lengths: seconds of each span. pauses, kept_pauses: seconds after each span but the last.
    """
    ends = list(accumulate(length + pause for length, pause in zip(lengths, (0.0, *kept_pauses), strict=True)))
    number = math.ceil(ends[-1] / LONGEST_PASSAGE)
    if number <= 1:
        return len(lengths)
    length = ends[-1] / number
    near = [index for index, end in enumerate(ends[:-1]) if abs(end - length) <= SLACK * length]
    if not near:
        return min(range(1, len(lengths)), key=lambda count: abs(ends[count - 1] - length))
    return max(near, key=lambda index: pauses[index]) + 1
