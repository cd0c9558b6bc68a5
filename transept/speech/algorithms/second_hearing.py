"""Find speech without text, and decode it again or report it.

Models leave speech out: a window ends early where the language changes, or the text jumps to a later sentence. All
modes look for it in the gaps between segments, and, where words have times, between words. Batched mode calls
`listen_again` for such stretches; sequential and auto mode use a `SecondHearing`.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from math import inf
from typing import Any, TypeAlias

from transept.core.jobs.job import Job, Offload
from transept.multimodal.waveforms import Waveform
from transept.speech.algorithms.decoding import repeats_itself
from transept.speech.algorithms.source import Source, Window
from transept.speech.segments import Segment
from transept.speech.timing.turns import cut_between_words
from transept.speech.vad.options import VadOptions
from transept.speech.vad.spans import SAMPLE_RATE, Span, speech_spans

Stretch: TypeAlias = tuple[float, float]  # seconds: begin, end

LONGEST_GAP = 1.5  # seconds of speech that segments may leave uncovered; complete transcripts left at most 0.9 s
DECODED_AGAIN = 3.0  # seconds; batched and multilingual decoding decode longer uncovered speech again
SHORT_PAUSE = 1.0  # seconds; between sentences
SHORTEST_PAUSE = 0.2  # seconds; a sentence may begin after a pause of this length
LONG_WORD = 2.0  # seconds; a longer word is taken to last BELIEVED seconds
BELIEVED = 0.3  # seconds
LEAD = 0.1  # seconds before the speech that voice activity detection found


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


def listen_again(
    stretches: Iterable[Stretch], decode: Callable[[Stretch], Job], shortest: float
) -> Generator[Any, Any, tuple[list[Segment], list[Stretch]]]:
    """A job that decodes speech without text. Returns its segments, and the stretches that still have no text.

    decode: makes the job for a stretch of more than `shortest` seconds, which returns its segments.
    """
    found: list[Segment] = []
    missed: list[Stretch] = []
    for stretch in stretches:
        again = (yield from decode(stretch)) if stretch[1] - stretch[0] > shortest else []
        found += again
        missed += uncovered([stretch], again)
    return found, missed


class SecondHearing:
    """Completes the segments of windows, in auto mode and with ``multilingual``; otherwise only looks for gaps.

    decode: makes the job that returns the segments of a stretch of the source. covered: seconds up to which no speech
    is left to decode. missed: stretches of speech without words, in seconds.
    """

    def __init__(self, source: Source, decode: Callable[[Source, Stretch], Job]) -> None:
        self.source, self.decode = source, partial(decode, source)
        self.decodes = source.options.multilingual or source.speech is not None
        self.covered = 0.0
        self.missed: list[Stretch] = []

    def complete(
        self, clip: Window, window: Window, segments: Iterable[Segment], next_start: int
    ) -> Generator[Any, Any, list[Segment]]:
        """A job that returns a window's segments, and new segments for missed speech before, within and after them.

        next_start: frame at which the next window begins.
        """
        fps, found = self.source.model.fps, list[Segment]()
        if window.start == clip.start:
            self.covered = clip.start / fps
        for segment in segments:
            if not segment.text:
                found.append(segment)
                continue
            heard = segment if self.source.speech is None else believed(segment)
            found += yield from self._between(self.covered, heard.start)
            found += yield from self.with_gaps_filled(heard, segment.end)
            self.covered = max(self.covered, segment.end)
        if next_start >= clip.end:
            found += yield from self._between(self.covered, clip.end / fps)
        return found

    def with_gaps_filled(self, segment: Segment, end: float) -> Generator[Any, Any, list[Segment]]:
        """A job that divides a segment where its text leaves out speech. Returns its parts and that speech's segments.

        end: time up to which the segment's text may leave out speech after its last word.
        """
        gaps, again, replaced = gaps_within(segment), list[Segment](), list[Stretch]()
        if segment.words and end - segment.end > LONGEST_GAP:
            gaps.append((segment.end, end))
        for begin, stop in gaps:
            heard = yield from self._between(begin, stop, self._pause_before(begin, segment.start))
            if heard:
                again += heard
                replaced.append((min(begin, heard[0].start), begin))

        def place(start: float, end: float) -> int | None:
            """Number the parts of the segment by their words; None for words that were decoded again."""
            middle = (start + end) / 2
            is_replaced = any(first <= middle < last for first, last in replaced)
            return None if is_replaced else bisect_right([first for first, _ in replaced], start)

        parts = cut_between_words(segment, place, self.source.model.tokenizer.decode)
        kept = [part for number, part in parts if number is not None]
        return sorted([*kept, *again], key=lambda each: each.start)

    def _between(self, begin: float, end: float, since: float | None = None) -> Generator[Any, Any, list[Segment]]:
        """A job that decodes long speech in a stretch without text, if `decodes` is set. Returns its segments.

        since: where the sentence that continues in the stretch may begin. If the model again leaves out the beginning
        of the stretch, or repeats itself, the sentence is decoded from `since`. Its first segment then begins before
        the stretch.
        """
        source = self.source
        if end - begin <= LONGEST_GAP or source.model.spec.sample_rate != SAMPLE_RATE:
            return []
        if source.speech is None:
            spoken = yield Offload(partial(spoken_within, source.waveform, (begin, end), source.options.vad_options))
        else:
            spoken = known_within(source.speech, (begin, end))

        def decode(stretch: Stretch) -> Generator[Any, Any, list[Segment]]:
            again: list[Segment] = yield from self.decode(stretch)
            said = [token for each in again for token in each.tokens if token in source.model.tokenizer.text_tokens]
            left_out = [stretch] if repeats_itself(said) else uncovered([stretch], again)
            if since is not None and left_out and left_out[0][0] == stretch[0] <= begin + BELIEVED:
                sentence: list[Segment] = yield from self.decode((since, stretch[1]))
                if not uncovered([(since, stretch[1])], sentence):
                    return sentence
            return again

        shortest = DECODED_AGAIN if source.speech is None else 0.0
        found, missed = yield from listen_again(spoken, decode, shortest if self.decodes else inf)
        self.missed += missed
        return found

    def _pause_before(self, time: float, earliest: float) -> float | None:
        """Return the end of the last pause after `earliest` and before a time, in seconds, or None."""
        pauses = [
            span.start / SAMPLE_RATE
            for before, span in pairwise(self.source.speech or ())
            if span.start - before.end >= SHORTEST_PAUSE * SAMPLE_RATE and earliest < span.start / SAMPLE_RATE < time
        ]
        return round(pauses[-1] - LEAD, 2) if pauses else None


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
