"""Results of a transcription: TranscriptionInfo before the first segment, and the Transcript at the end.

`Transcript.from_dict` reads a transcript from plain dicts, with checks of every field: the inverse of `to_dict`. The
server calls it for transcripts that clients send. It also reads segments of OpenAI's verbose JSON, and of the server's
events.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Unpack

from transept.errors import ParameterError
from transept.option_names import finite
from transept.options import LONE_SURROGATE
from transept.speech.options import TranscriptionOptions
from transept.speech.output.subtitles import SubtitleLayout
from transept.speech.output.writers import format_transcript, write_transcript
from transept.speech.segments import Segment, Word

if TYPE_CHECKING:
    from transept.speech.option_types import SubtitleKeywords

MAX_SECONDS = 1e9  # of a time: 31 years, so that its milliseconds are exact
TEXT = "text without half a surrogate pair"  # half a pair cannot be encoded in a file


class DetectedLanguage(NamedTuple):
    """The language of a recording.

    language: code, such as ``"en"``. probability: of that language. probabilities: of all languages by code.
    """

    language: str
    probability: float
    probabilities: dict[str, float]


@dataclass(frozen=True)
class TranscriptionInfo:
    """Facts about a recording before its first segment: an event of its job, and `info` of a stream.

    language: code, such as ``"en"``. language_probability: None if the user named the language or the model knows
    only one. language_probabilities: of all languages by code, the most likely first; empty if none was detected.
    duration: seconds of audio. duration_after_vad: seconds left after silence is cut out, in auto and batched mode or
    with vad; otherwise the duration. options: the requested ones. warnings: faults of the recording (damage, missing
    audio, a silent track, ...), each with the time at which it begins; each continues a sentence that begins "the
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
    """A whole recording. Iterating over it yields its segments; ``if transcript`` holds even without segments.

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
        fields = _Fields(given)
        segments = [_segment(each, index) for index, each in enumerate(fields.objects("segments"))]
        duration = fields.seconds("duration", max((segment.end for segment in segments), default=0.0))
        spoken = "language" if fields.raw("spoken_language") is None else "spoken_language"  # beside a translation's
        probability = fields.raw("language_probability")
        return cls(
            text=fields.text("text", "".join(segment.text for segment in segments).strip()),
            language=fields.text(spoken, ""),
            language_probability=None if probability is None else fields.number("language_probability", 0.0),
            language_probabilities=fields.numbers("language_probabilities"),
            duration=duration,
            duration_after_vad=fields.seconds("duration_after_vad", duration),
            segments=segments,
            options=TranscriptionOptions(),
            missed_speech=[
                (float(begin), float(end))
                for begin, end in fields.items("missed_speech", _is_stretch, "a list of two times")
            ],
            warnings=fields.items("warnings", _is_text, TEXT),
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


class _Fields:
    """A dict whose fields are read with a check of their types. The value None counts as missing.

    place: name of the dict, such as ``"segments[3]"``; empty for the outermost. Every method raises ParameterError
    for a wrong value, and for a missing one without a default.
    """

    def __init__(self, given: Any, place: str = "") -> None:
        if not isinstance(given, Mapping):
            raise _wrong(place or "transcript", "an object", given)
        self._given, self._place = given, place

    def raw(self, name: str) -> Any:
        """Return a field unchecked; None if it is missing."""
        return self._given.get(name)

    def text(self, name: str, default: str | None = None) -> str:
        """Return a text."""
        value: str = self._checked(name, default, _is_text, TEXT)
        return value

    def seconds(self, name: str, default: float | None = None) -> float:
        """Return a time."""
        return float(self._checked(name, default, _is_time, f"a number of seconds from 0 to {MAX_SECONDS:.0f}"))

    def span(self) -> tuple[float, float]:
        """Return ``start`` and ``end``."""
        start, end = self.seconds("start"), self.seconds("end")
        if end < start:
            raise _wrong(self._at("end"), f"at least start, which is {start:g}", end)
        return start, end

    def number(self, name: str, default: float) -> float:
        """Return a finite number."""
        return float(self._checked(name, default, _is_number, "a number"))

    def integer(self, name: str, default: int) -> int:
        """Return an integer of at least 0."""
        value: int = self._checked(name, default, _is_index, "an integer of at least 0")
        return value

    def objects(self, name: str, default: list[Any] | None = None) -> list[_Fields]:
        """Return a list of dicts."""
        place = self._at(name)
        return [_Fields(each, f"{place}[{index}]") for index, each in enumerate(self._list(name, default))]

    def numbers(self, name: str) -> dict[str, float]:
        """Return an object of numbers, empty if missing."""
        given = _Fields(self.raw(name) or {}, name)
        return {each: given.number(each, 0.0) for each in given._given}

    def items(self, name: str, is_right: Callable[[Any], bool], wanted: str) -> list[Any]:
        """Return a list, empty if missing, all of whose entries pass `is_right`. wanted: describes such an entry."""
        items = self._list(name, [])
        for index, each in enumerate(items):
            if not is_right(each):
                raise _wrong(f"{self._at(name)}[{index}]", wanted, each)
        return items

    def _list(self, name: str, default: list[Any] | None) -> list[Any]:
        value: list[Any] = self._checked(name, default, lambda each: isinstance(each, list), "a list")
        return value

    def _checked(self, name: str, default: Any, is_right: Callable[[Any], bool], wanted: str) -> Any:
        value = self._given.get(name)
        if value is None:
            value = default
        if value is None:
            raise ParameterError(f"{{{self._at(name)}}} is missing", param=self._at(name))
        if not is_right(value):
            raise _wrong(self._at(name), wanted, value)
        return value

    def _at(self, name: str) -> str:
        return f"{self._place}.{name}" if self._place else name


def _segment(fields: _Fields, index: int) -> Segment:
    """Return a segment. index: used as its id if the dict has no id, or an event's id (``"seg_3"``)."""
    has_words, has_logprobs = (fields.raw(name) is not None for name in ("words", "token_logprobs"))
    start, end = fields.span()
    return Segment(
        id=index if isinstance(fields.raw("id"), str) else fields.integer("id", index),
        seek=fields.integer("seek", 0),
        start=start,
        end=end,
        text=fields.text("text"),
        tokens=fields.items("tokens", _is_index, "an integer of at least 0"),
        temperature=fields.number("temperature", 0.0),
        avg_logprob=fields.number("avg_logprob", 0.0),
        compression_ratio=fields.number("compression_ratio", 0.0),
        no_speech_prob=fields.number("no_speech_prob", 0.0),
        words=[_word(each, start, end) for each in fields.objects("words")] if has_words else None,
        token_logprobs=fields.items("token_logprobs", _is_number, "a number") if has_logprobs else None,
        language=fields.text("language", "") or None,
        speaker=fields.text("speaker", "") or None,
    )


def _word(fields: _Fields, earliest: float, latest: float) -> Word:
    """Return a word. earliest, latest: the times of its segment, which it must overlap or touch."""
    start, end = fields.span()
    if end < earliest or start > latest:
        raise _wrong(fields._at("start"), f"within its segment, from {earliest:g} to {latest:g}", start)
    return Word(start, end, fields.text("word"), fields.number("probability", 1.0))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not LONE_SURROGATE.search(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(finite(value))


def _is_time(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= MAX_SECONDS


def _is_index(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_stretch(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and all(map(_is_time, value))


def _wrong(place: str, wanted: str, value: Any) -> ParameterError:
    return ParameterError(f"{{{place}}} must be {wanted}, not {{{place}!}}", param=place, value=value)
