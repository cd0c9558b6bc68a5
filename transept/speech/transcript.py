"""Results of a transcription: TranscriptionInfo before the first segment, and the Transcript at the end."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Unpack

from transept.speech.options import TranscriptionOptions
from transept.speech.output.subtitles import SubtitleLayout
from transept.speech.output.writers import format_transcript, write_transcript
from transept.speech.segments import Segment
from transept.speech.transcript_fields import Fields, numbers_in, segments_in, stretches_in, texts_in

if TYPE_CHECKING:
    from transept.speech.option_types import SubtitleKeywords


class DetectedLanguage(NamedTuple):
    """The language of a recording.

    language: code, such as ``"en"``. probability: of that language. probabilities: of all languages by code.
    """

    language: str
    probability: float
    probabilities: dict[str, float]


@dataclass(frozen=True)
class TranscriptionInfo:
    """What is known of a recording before its first segment: an event of its job, and `info` of a stream.

    language: code, such as ``"en"``. language_probability: None if the user named the language or the model knows
    only one. language_probabilities: of all languages by code, the most likely first; empty if none was detected.
    duration: seconds of audio. duration_after_vad: seconds left after silence is cut out, in auto and batched mode or
    with vad; otherwise the duration. options: the requested ones. warnings: faults of the recording (damage, missing
    sound, a silent track, ...), each with the time at which it begins; each continues a sentence that begins "the
    recording is".
    """

    language: str
    language_probability: float | None
    language_probabilities: dict[str, float]
    duration: float
    duration_after_vad: float
    options: TranscriptionOptions
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Transcript:
    """A whole recording. Iterating over it yields its segments; ``if transcript`` holds even if there are none.

    text: all of it, without leading or trailing blanks. segments: in order of time. missed_speech: stretches (begin,
    end), in seconds, of more than 1.5 seconds of speech that no segment covers; empty for families whose sample rate is
    not 16 kHz. reason: why text is empty, such as "the recording is silent: ..."; None if it is not. The rest: see
    TranscriptionInfo.
    """

    text: str
    language: str
    language_probability: float | None
    language_probabilities: dict[str, float]
    duration: float
    duration_after_vad: float
    segments: list[Segment]
    options: TranscriptionOptions
    missed_speech: list[tuple[float, float]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    reason: str | None = None

    @classmethod
    def of(
        cls,
        info: TranscriptionInfo,
        text: str,
        segments: list[Segment],
        missed_speech: Iterable[tuple[float, float]] = (),
        reason: str | None = None,
    ) -> Transcript:
        """Return the transcript of an info's recording. reason: why text is empty; dropped if it is not."""
        known = {each.name: getattr(info, each.name) for each in dataclasses.fields(info)}
        why = None if text else reason
        return cls(text=text, segments=segments, missed_speech=list(missed_speech), reason=why, **known)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Transcript:
        """Return the transcript that a dict describes: one of `to_dict`, OpenAI's verbose JSON, or one edited by hand.

        given: needs ``segments``, each with ``start``, ``end`` and ``text``; all else has a default, and further fields
        are ignored. options are the defaults, since the dict has none.
        Raises ParameterError, whose param names the field at fault, such as ``"segments[3].start"``.
        """
        fields = Fields(given)
        segments = segments_in(fields)
        duration = fields.seconds("duration", max((segment.end for segment in segments), default=0.0))
        spoken = "language" if fields.raw("spoken_language") is None else "spoken_language"  # beside a translation's
        probability = fields.raw("language_probability")
        return cls(
            text=fields.text("text", "".join(segment.text for segment in segments).strip()),
            language=fields.text(spoken, ""),
            language_probability=None if probability is None else fields.number("language_probability", 0.0),
            language_probabilities=numbers_in(fields, "language_probabilities"),
            duration=duration,
            duration_after_vad=fields.seconds("duration_after_vad", duration),
            segments=segments,
            options=TranscriptionOptions(),
            missed_speech=stretches_in(fields, "missed_speech"),
            warnings=texts_in(fields, "warnings"),
            reason=fields.text("reason", "") or None,
        )

    def __iter__(self) -> Iterator[Segment]:
        """The segments, in order of time."""
        return iter(self.segments)

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts and lists, ready for JSON: openai-whisper's text, segments and language, then our own fields."""
        return {
            "text": self.text,
            "segments": [segment.to_dict() for segment in self.segments],
            "language": self.language,
            "language_probability": self.language_probability,
            "language_probabilities": self.language_probabilities,
            "duration": self.duration,
            "duration_after_vad": self.duration_after_vad,
            "missed_speech": [list(stretch) for stretch in self.missed_speech],
            "warnings": self.warnings,
            "reason": self.reason,
        }

    def to_str(self, format: str, **layout: Unpack[SubtitleKeywords]) -> str:
        """Return what `write` writes: the transcript as txt, srt, vtt, tsv, json, lrc, csv or ass.

        Raises ParameterError as `write`.
        """
        return format_transcript(format, self.segments, self.language, SubtitleLayout(**layout))

    def to_srt(self, **layout: Unpack[SubtitleKeywords]) -> str:
        """Return the transcript as SubRip subtitles. layout, errors: see `write`."""
        return self.to_str("srt", **layout)

    def to_vtt(self, **layout: Unpack[SubtitleKeywords]) -> str:
        """Return the transcript as WebVTT subtitles. layout, errors: see `write`."""
        return self.to_str("vtt", **layout)

    def write(self, file: str | Path | IO[Any], format: str | None = None, **layout: Unpack[SubtitleKeywords]) -> None:
        """Write the transcript in one of openai-whisper's formats, txt, srt, vtt, tsv or json, or as lrc, csv or ass.

        file: a path; or an open file, of text or of bytes, which stays open, such as ``sys.stdout``.
        format: None takes it from the suffix of the path, or of the open file's name.
        layout: of subtitles: highlight_words, max_line_width, max_line_count, max_words_per_line; see SubtitleLayout.
            All need a transcript with word_timestamps. ass shows karaoke of such a transcript, and lrc has no
            highlight_words. Formats other than subtitles ignore the layout.
        Raises ParameterError for an unknown format or layout, and for a layout without words; OSError if the file
        cannot be written.
        """
        write_transcript(file, format, self.segments, self.language, SubtitleLayout(**layout))
