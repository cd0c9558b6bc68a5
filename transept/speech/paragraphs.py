"""Paragraphs of a transcript: segments of one speaker, up to a pause or the end of a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from transept.speech.segments import Segment
from transept.speech.sentences import ends_sentence
from transept.speech.word_breaks import joined_text

PAUSE = 1.5  # seconds; a longer one between two sentences ends a paragraph
LONG_PAUSE = 4.0  # seconds; ends a paragraph anywhere
LONGEST = 700  # characters; a longer paragraph ends with its sentence, one of twice the length with its segment


@dataclass(frozen=True)
class Passage:
    """Consecutive segments, all with text."""

    segments: Sequence[Segment]

    @property
    def start(self) -> float:
        """The start of its first segment, in seconds."""
        return self.segments[0].start

    @property
    def end(self) -> float:
        """The latest end of its segments, in seconds."""
        return max(segment.end for segment in self.segments)

    @property
    def text(self) -> str:
        """The text on one line, without blanks around it."""
        return " ".join(joined_text(segment.text for segment in self.segments).split())


@dataclass(frozen=True)
class Paragraph(Passage):
    """A passage of one speaker."""

    @property
    def speaker(self) -> str | None:
        """The speaker of all its segments."""
        return self.segments[0].speaker


def paragraphs(segments: Sequence[Segment]) -> Iterator[Paragraph]:
    """Yield the paragraphs of a transcript.

    A paragraph ends where the speaker changes, at a pause of PAUSE seconds after a sentence, at a pause of LONG_PAUSE
    seconds anywhere, and at the end of a sentence once it is longer than LONGEST characters.
    """
    own: list[Segment] = []
    length = 0  # characters
    for segment in segments:
        if not segment.text.strip():
            continue
        if own and _ends(own[-1], segment, length):
            yield Paragraph(own)
            own, length = [], 0
        own.append(segment)
        length += len(segment.text)
    if own:
        yield Paragraph(own)


def _ends(last: Segment, following: Segment, length: int) -> bool:
    """True if a paragraph of `length` characters ends between two segments."""
    pause = following.start - last.end
    if last.speaker != following.speaker or pause >= LONG_PAUSE or length > 2 * LONGEST:
        return True
    return (pause >= PAUSE or length > LONGEST) and ends_sentence(last.text)
