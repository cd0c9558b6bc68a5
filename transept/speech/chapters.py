"""Chapters of a transcript: long stretches, cut at the longest pauses."""

from __future__ import annotations

from collections.abc import Sequence

from transept.speech.paragraphs import Passage
from transept.speech.segments import Segment
from transept.speech.sentences import ends_sentence

SHORTEST = 1.0  # second; lowest length of a chapter to ask for
LONGEST = 300.0  # seconds of a chapter, by default
LEAST_SHARE = 0.25  # of a chapter's longest length: each side of a cut has at least as much
AFTER_SENTENCE, NEW_SPEAKER = 1.0, 0.5  # seconds of pause that a sentence's end and a new speaker are worth
TO_MIDDLE = 1.0  # seconds of pause by which a cut in the middle is worth more than one at the ends


def chapters(segments: Sequence[Segment], longest: float = LONGEST) -> list[Passage]:
    """Return the chapters of a transcript, each of up to `longest` seconds unless one segment is longer.

    A longer stretch is cut in two where the pause is longest. Ends of sentences, changes of the speaker and the middle
    of the stretch are preferred.
    """
    spoken = [segment for segment in segments if segment.text.strip()]
    found: list[Passage] = []
    rest = [spoken] if spoken else []
    while rest:  # stretches still to cut, in reverse order
        stretch = rest.pop()
        if len(stretch) == 1 or Passage(stretch).end - stretch[0].start <= longest:
            found.append(Passage(stretch))
            continue
        worths = [_worth(stretch, index, longest) for index in range(1, len(stretch))]
        cut = 1 + worths.index(max(worths))
        rest += [stretch[cut:], stretch[:cut]]
    return found


def _worth(stretch: Sequence[Segment], index: int, longest: float) -> float:
    """Return how good a cut before a segment is, in seconds of pause."""
    before, after = stretch[index - 1], stretch[index]
    begin, end = stretch[0].start, stretch[-1].end
    least = LEAST_SHARE * min(longest, (end - begin) / 2)
    shortest = min(before.end - begin, end - after.start)
    if shortest < least:
        return shortest - least
    worth = max(0.0, after.start - before.end) + TO_MIDDLE * 2 * shortest / (end - begin)
    worth += AFTER_SENTENCE if ends_sentence(before.text) else 0.0
    return worth + (NEW_SPEAKER if before.speaker != after.speaker else 0.0)
