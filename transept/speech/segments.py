"""Segments of a recording and their words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Word:
    """One word with the blank before it and the punctuation around it.

    start, end: seconds from the recording's beginning. probability: mean of its tokens'.
    """

    start: float
    end: float
    word: str
    probability: float


@dataclass(frozen=True)
class Segment:
    """One stretch of the recording, as the model's timestamps cut it.

    id: its position among the recording's segments. seek: frame (10 ms) at which its window begins.
    start, end: seconds from the recording's beginning.
    text, tokens: what is said; the tokens include the timestamps. Both are empty where the model gave a stretch no text
        or no length.
    temperature, avg_logprob, compression_ratio, no_speech_prob: of the decoding of its window. avg_logprob is the mean
        over the tokens and the end of the text, compression_ratio what zlib makes of the text,
        no_speech_prob the probability that nobody speaks.
    words: with word_timestamps. token_logprobs: with that option, the log probability of each of the tokens; 0 for
        those of a prefix, which are given. language: the code, where each window's language is detected (multilingual)
        or the channels of a recording differ in it. speaker: the channel (channel="each") or the diarizer's name for
        who speaks; None where speakers are not told apart, or nobody was found to speak.
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
        """What stands before the text where it is read: ``"left: "``; empty without a speaker."""
        return "" if self.speaker is None else f"{self.speaker}: "

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts and lists under openai-whisper's names; without what there is not of the last four fields.

        Where nothing is said there are no words either, which it says of such segments alone.
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
    """Whether it is known of any of them who speaks."""
    return any(segment.speaker is not None for segment in segments)
