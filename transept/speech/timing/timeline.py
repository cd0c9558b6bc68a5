"""Timeline: map times in a recording without its silence to times in the whole recording."""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from transept.speech.segments import AttendedWord, Segment, Word
from transept.speech.vad.spans import Span


class Timeline:
    """A map from times in the kept spans of a recording to times in the recording.

    spans: in samples, ascending; empty: nothing was cut out, and times do not change. rate: samples per second.
    """

    def __init__(self, spans: Sequence[Span], rate: int) -> None:
        self.spans = spans
        self.rate = rate
        self.begins = [
            0,
            *accumulate(span.end - span.start for span in spans),
        ]  # samples; of each span in the joined spans

    def time(self, seconds: float, *, after_pause: bool) -> float:
        """Return the time in the recording; at a cut-out pause, the end or the beginning of the pause."""
        if not self.spans:
            return seconds
        position = seconds * self.rate
        index = bisect_right(self.begins, position) - 1
        if not after_pause and index and position == self.begins[index]:
            index -= 1
        index = min(index, len(self.spans) - 1)
        return round((self.spans[index].start + position - self.begins[index]) / self.rate, 2)

    def restored(self, segment: Segment) -> Segment:
        """Return a segment and its words with the recording's times; each word stays within one span."""
        if not self.spans:
            return segment
        if not segment.words:
            start, end = self.time(segment.start, after_pause=True), self.time(segment.end, after_pause=False)
            return dataclasses.replace(segment, start=start, end=max(start, end))
        words = [self._word(word) for word in segment.words]
        return dataclasses.replace(segment, start=words[0].start, end=words[-1].end, words=words)

    def _word(self, word: Word) -> Word:
        middle = (word.start + word.end) / 2
        shift = self.time(middle, after_pause=True) - middle
        word = dataclasses.replace(word, start=round(word.start + shift, 2), end=round(word.end + shift, 2))
        if isinstance(word, AttendedWord):
            word = dataclasses.replace(word, onset=self.time(word.onset, after_pause=True))
        return word
