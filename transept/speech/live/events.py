"""Events of a live transcription, in the order in which they become known. All times are seconds of the stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from transept.speech.segments import Segment, Word


@dataclass(frozen=True)
class SpeechStarted:
    """Speech was heard. start: where it begins, with the padding before it."""

    start: float


@dataclass(frozen=True)
class SpeechStopped:
    """An utterance is over: nobody has spoken for the configured silence. end: of its last speech."""

    end: float


@dataclass(frozen=True)
class LanguageDetected:
    """The spoken language became known, or changed. language: its code."""

    language: str
    probability: float


@dataclass(frozen=True)
class Committed:
    """Words that are final: they are never taken back, and follow all earlier ones.

    text: the words, joined; with the blank before them, if there is one. lag: seconds between the arrival of the last
    word's end and this event.
    """

    words: tuple[Word, ...]
    lag: float

    @property
    def text(self) -> str:
        """The words, joined, with the blank before them if there is one."""
        return "".join(word.word for word in self.words)


@dataclass(frozen=True)
class Tentative:
    """The text after the last committed word, as it seems now. Each event replaces the one before; empty: none."""

    text: str


@dataclass(frozen=True)
class UtteranceEnded:
    """The final segment of an utterance: all of its committed words. Nothing else is said about the utterance.

    delay: seconds between the arrival of the audio that ended the utterance and this event.
    """

    segment: Segment
    delay: float


@dataclass(frozen=True)
class Lagging:
    """The machine does not keep up: audio arrives faster than it is read, and passes are skipped.

    seconds: of audio that has arrived and has not been read.
    """

    seconds: float


LiveEvent: TypeAlias = (
    SpeechStarted | SpeechStopped | LanguageDetected | Committed | Tentative | UtteranceEnded | Lagging
)
