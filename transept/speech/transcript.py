"""What a transcription returns: the recording's text, its segments and their words."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transept.speech.options import TranscriptionOptions


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
    words: with word_timestamps. language: the code, where every window's language is detected (multilingual).
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
    language: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts and lists under openai-whisper's names; without words and language where there are none."""
        fields = dataclasses.asdict(self)
        for name in ("words", "language"):
            if fields[name] is None:
                del fields[name]
        return fields


@dataclass(frozen=True)
class Transcript:
    """A whole recording.

    text: all of it, without leading or trailing blanks. language: code, such as ``"en"``.
    language_probability: None where the user named the language or the model knows only one.
    duration: seconds of audio. segments: in order of time. options: what was asked for.
    """

    text: str
    language: str
    language_probability: float | None
    duration: float
    segments: list[Segment]
    options: TranscriptionOptions

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts and lists, ready for JSON: openai-whisper's text, segments and language, then what is ours."""
        return {
            "text": self.text,
            "segments": [segment.to_dict() for segment in self.segments],
            "language": self.language,
            "language_probability": self.language_probability,
            "duration": self.duration,
        }

    def write(self, path: str | Path, **layout: bool | int | None) -> None:
        """Write a file in the format that the path's suffix names: .txt, .srt, .vtt, .tsv or .json, as openai-whisper.

        layout: of subtitles: highlight_words, max_line_width, max_line_count, max_words_per_line; see SubtitleLayout.
            All need a transcript with word_timestamps. Other formats do not look at it.
        Raises ParameterError for an unknown suffix or layout, and for a layout without words; OSError when the file
        cannot be written.
        """
        from transept.speech.subtitles import SubtitleLayout
        from transept.speech.writers import write_transcript

        write_transcript(self, path, SubtitleLayout.of(**layout))
