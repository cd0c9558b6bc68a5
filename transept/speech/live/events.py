"""Events of a live transcription. Times are in seconds from the beginning of the stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from transept.speech.segments import Segment, Word


@dataclass(frozen=True)
class SpeechStarted:
    """An utterance has begun. start: of its audio, which includes the padding before the speech."""

    start: float


@dataclass(frozen=True)
class SpeechStopped:
    """An utterance has ended, after `vad_silence_ms` of silence or with the stream. end: of its last speech."""

    end: float


@dataclass(frozen=True)
class LanguageDetected:
    """The language of the stream has been detected, once, in its first utterance. language: its code."""

    language: str
    probability: float


@dataclass(frozen=True)
class Committed:
    """Final words, after all earlier ones. They are never taken back.

    lag: seconds from the arrival of the last word's end until this event.
    """

    words: tuple[Word, ...]
    lag: float

    @property
    def text(self) -> str:
        """The joined words, with the leading blank if there is one."""
        return "".join(word.word for word in self.words)


@dataclass(frozen=True)
class Tentative:
    """The present guess of the text after the last committed word; may be empty. It replaces the previous Tentative.

    It ends before an unlikely word at the end of the audio, because that word is probably cut off.
    """

    text: str


@dataclass(frozen=True)
class UtteranceEnded:
    """The last event of an utterance.

    segment: the utterance with all its committed words; None without words.
    delay: seconds from the arrival of the audio that ended the utterance until this event.
    """

    segment: Segment | None
    delay: float


@dataclass(frozen=True)
class Lagging:
    """The machine is too slow for the stream, so passes are skipped.

    seconds: length of the audio that has arrived and is not read yet.
    """

    seconds: float


LiveEvent: TypeAlias = (
    SpeechStarted | SpeechStopped | LanguageDetected | Committed | Tentative | UtteranceEnded | Lagging
)
