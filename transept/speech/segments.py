"""Segments of a recording, their words, and the events of a transcription's job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Word:
    """A word, with the blank before it and the punctuation around it.

    start, end: seconds from the start of the recording. probability: mean over its tokens.
    """

    start: float
    end: float
    word: str
    probability: float


@dataclass(frozen=True)
class AttendedWord(Word):
    """A word of an unfinished segment, whose boundaries `timing.boundaries` will refine.

    onset: seconds at which the decoder begins to attend to it, a little after its start.
    """

    onset: float


@dataclass(frozen=True)
class Segment:
    """A stretch of the recording, cut at the model's timestamps.

    id: its position among the recording's segments. seek: frame (10 ms) at which its window begins.
    start, end: seconds from the start of the recording.
    text, tokens: the tokens include the timestamps. Both are empty if the model gave a stretch no text or no length.
    temperature, avg_logprob, compression_ratio, no_speech_prob: of the decoding of its window. avg_logprob is the mean
        over the tokens and the end of text, compression_ratio the one of zlib on the text, no_speech_prob the
        probability of silence.
    words: with word_timestamps. token_logprobs: with that option, the log probability of each token; 0 for the tokens
        of a prefix. language: the code, if each window's language is detected (multilingual) or the languages of the
        channels differ. speaker: the channel (channel="each"), or the diarizer's name for the speaker; None without
        these options, or if no speaker was found.
    """

    id: int
    seek: int
    start: float
    end: float
    text: str
    tokens: list[int]
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float
    words: list[Word] | None = None
    token_logprobs: list[float] | None = None
    language: str | None = None
    speaker: str | None = None

    @property
    def attribution(self) -> str:
        """The speaker as a prefix of the text, such as ``"left: "``; empty without a speaker."""
        return "" if self.speaker is None else f"{self.speaker}: "

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts and lists under openai-whisper's names; the last four fields are left out if None.

        A segment without text has an empty list of words, as in openai-whisper.
        """
        fields: dict[str, Any] = {
            name: list(value) if isinstance(value, list) else value for name, value in vars(self).items()
        }
        if self.words is not None:
            fields["words"] = [dict(vars(word)) for word in self.words]
        if not self.text and not self.tokens and self.words is None:
            fields["words"] = []
        for name in ("words", "token_logprobs", "language", "speaker"):
            if fields[name] is None:
                del fields[name]
        return fields


def has_speakers(segments: Iterable[Segment]) -> bool:
    """True if any segment has a speaker."""
    return any(segment.speaker is not None for segment in segments)


@dataclass(frozen=True)
class Opened:
    """An event: the recording could be read. duration: seconds."""

    duration: float


@dataclass(frozen=True)
class Found:
    """An event: new segments, in order of time.

    progress_seconds: progress of the whole job; no later segment begins before it.
    """

    segments: Sequence[Segment] = ()
    progress_seconds: float = 0.0
