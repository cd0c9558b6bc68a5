"""Coverage: find speech without text, so that it is decoded again or reported (`second_hearing.py`).

All modes look for it in the gaps between segments, and, where words have times, between words.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import TypeAlias

from transept.multimodal.waveforms import Waveform
from transept.speech.segments import Segment
from transept.speech.vad.options import VadOptions
from transept.speech.vad.spans import SAMPLE_RATE, Span, speech_spans

Stretch: TypeAlias = tuple[float, float]  # seconds: begin, end

LONGEST_GAP = 1.5  # seconds of speech that segments may leave uncovered; complete transcripts left at most 0.9 s
DECODED_AGAIN = 3.0  # seconds; batched and multilingual decoding decode longer uncovered speech again
SHORT_PAUSE = 1.0  # seconds; between sentences
LONG_WORD = 2.0  # seconds; a longer word is taken to last BELIEVED seconds
BELIEVED = 0.3  # seconds


@dataclass(frozen=True)
class Heard:
    """The segments that a mode found in a recording, in order of time.

    missed_speech: stretches that it left out, in seconds. num_dropped: windows whose text a threshold dropped.
    """

    segments: list[Segment] = field(default_factory=list)
    missed_speech: list[Stretch] = field(default_factory=list)
    num_dropped: int = 0

    @classmethod
    def joined(cls, parts: Sequence[Heard]) -> Heard:
        """Return the whole of a recording that was decoded in parts."""
        segments = [segment for part in parts for segment in part.segments]
        return cls(
            [dataclasses.replace(segment, id=index) for index, segment in enumerate(segments)],
            [stretch for part in parts for stretch in part.missed_speech],
            sum(part.num_dropped for part in parts),
        )


def uncovered(stretches: Iterable[Stretch], segments: Sequence[Segment], longest: float = LONGEST_GAP) -> list[Stretch]:
    """Return the parts of the stretches that no segment with text covers and that last more than `longest` seconds.

    segments: in order of time. Stretches and segments are in the time of the same waveform.
    """
    left_out = []
    for begin, end in stretches:
        for segment in segments:
            if not segment.text.strip() or segment.end <= begin or segment.start >= end:
                continue
            if segment.start - begin > longest:
                left_out.append((begin, segment.start))
            begin = max(begin, segment.end)
        if end - begin > longest:
            left_out.append((begin, end))
    return left_out


def believed(segment: Segment) -> Segment:
    """Return the segment with its long words shortened.

    If the text leaves out speech, alignment stretches the word before that speech over all of it.
    """
    if all(word.end - word.start <= LONG_WORD for word in segment.words or ()):
        return segment
    words = [
        word if word.end - word.start <= LONG_WORD else dataclasses.replace(word, end=round(word.start + BELIEVED, 2))
        for word in segment.words or ()
    ]
    return dataclasses.replace(segment, words=words, end=words[-1].end)


def gaps_within(segment: Segment) -> list[Stretch]:
    """Return the times between words of a segment that are longer than LONGEST_GAP."""
    times = [(before.end, after.start) for before, after in pairwise(segment.words or ())]
    return [(begin, end) for begin, end in times if end - begin > LONGEST_GAP]


def spoken_within(waveform: Waveform, stretch: Stretch, options: VadOptions) -> list[Stretch]:
    """Find speech of more than LONGEST_GAP in a stretch.

    waveform: float32 [samples] at 16 kHz, whose times the stretch and the result are in.
    """
    first, last = (round(seconds * SAMPLE_RATE) for seconds in stretch)
    options = dataclasses.replace(options, speech_pad_ms=0, max_speech_duration_s=inf)
    spans = speech_spans(waveform[first:last], options)
    times = [
        (round((first + each.start) / SAMPLE_RATE, 2), round((first + each.end) / SAMPLE_RATE, 2)) for each in spans
    ]
    return [(begin, end) for begin, end in times if end - begin > LONGEST_GAP]


def known_within(speech: Sequence[Span], stretch: Stretch) -> list[Stretch]:
    """Return the same from known spans of speech; pauses of up to SHORT_PAUSE count as speech.

    speech: rising, in samples of the waveform. The stretch and the result are in seconds of that waveform.
    """
    begin, end = stretch
    joined: list[Stretch] = []
    for span in speech:
        first, last = max(span.start / SAMPLE_RATE, begin), min(span.end / SAMPLE_RATE, end)
        if first >= last:
            continue
        if joined and first - joined[-1][1] <= SHORT_PAUSE:
            first = joined.pop()[0]
        joined.append((first, last))
    return [(round(first, 2), round(last, 2)) for first, last in joined if last - first > LONGEST_GAP]
