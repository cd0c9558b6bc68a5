"""Give words and segments a duration: attention assigns some words none.

`transept.speech.lasting` gives every word of a transcript a length. `transept.speech.output` does the same for
subtitles, since transcripts also come from elsewhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from transept.speech.segments import Segment, Word

SHORTEST = 0.02  # seconds; one position of Whisper's encoder


def lengthened(words: Sequence[Word]) -> list[Word]:
    """Return the words, each at least SHORTEST long, and none beginning before the previous one ends.

    A word that is too short takes time from the pause after it, or from the next words if there is no pause. The last
    word ends later than before only if the whole sequence is too short for its words.
    """
    if not words:
        return []
    begin = done = words[0].start
    times = []
    for word in words:
        start = max(word.start, done)
        done = max(word.end, start + SHORTEST)
        times.append((start, done))
    limit = max(words[-1].end, begin + len(words) * SHORTEST)
    for index in range(len(words) - 1, -1, -1):
        start, end = times[index]
        end = min(end, limit)
        limit = max(begin, min(start, end - SHORTEST))
        times[index] = (limit, end)
    return [
        word if (word.start, word.end) == (start, end) else dataclasses.replace(word, start=start, end=end)
        for word, (start, end) in zip(words, times, strict=True)
    ]


def lasting(segment: Segment) -> Segment:
    """Return the segment with a duration for each word, and for itself if it has text; unchanged if they have one."""
    start, end, words = segment.start, segment.end, segment.words
    if words and any(word.end <= word.start for word in words):
        words = [
            each if each is word else dataclasses.replace(each, start=round(each.start, 3), end=round(each.end, 3))
            for word, each in zip(words, lengthened(words), strict=True)
        ]
        end = max(end, words[-1].end)
    if segment.text and end <= start:
        end = round(start + SHORTEST, 3)
    if words is segment.words and end == segment.end:
        return segment
    return dataclasses.replace(segment, end=end, words=words)
