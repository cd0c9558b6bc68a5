"""What a transcription returns: the recording's text, its segments and their words."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from transept.speech.options import TranscriptionOptions
from transept.speech.output.subtitles import SubtitleLayout
from transept.speech.output.writers import write_transcript
from transept.speech.segments import Segment


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

    def write(self, file: str | Path | IO[Any], format: str | None = None, **layout: bool | int | None) -> None:
        """Write the transcript in one of openai-whisper's formats: txt, srt, vtt, tsv or json.

        file: a path; or an open file, of text or of bytes, which stays open, such as ``sys.stdout``.
        format: None takes it from the suffix of the path, or of the open file's name.
        layout: of subtitles: highlight_words, max_line_width, max_line_count, max_words_per_line; see SubtitleLayout.
            All need a transcript with word_timestamps. Other formats do not look at it.
        Raises ParameterError for an unknown format or layout, and for a layout without words; OSError when the file
        cannot be written.
        """
        write_transcript(file, format, self.segments, self.language, SubtitleLayout.of(**layout))
