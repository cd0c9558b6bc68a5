"""Times in a recording of which parts were cut out, told as times in the whole recording."""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from transept.speech.segments import Segment, Word
from transept.speech.vad.spans import Span


class Timeline:
    """From times in what was kept of a recording to times in the recording.

    spans: what was kept, in samples, rising; without any nothing was cut out, and every time stays as it is.
    rate: samples in a second.
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
        return dataclasses.replace(word, start=round(word.start + shift, 2), end=round(word.end + shift, 2))
