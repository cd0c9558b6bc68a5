"""Results of a transcription: TranscriptionInfo before the first segment, and the Transcript at the end.

`Transcript.from_dict` reads a transcript from plain dicts, with checks of every field: the inverse of `to_dict`. The
server calls it for transcripts that clients send. It also reads segments of OpenAI's verbose JSON, and of the server's
events.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, NamedTuple, Unpack

from transept.errors import ParameterError
from transept.registry.name_finders import find_name_finder
from transept.registry.plugins import discover
from transept.speech import editing
from transept.speech.chapters import LONGEST as LONGEST_CHAPTER
from transept.speech.chapters import SHORTEST as SHORTEST_CHAPTER
from transept.speech.chapters import chapters
from transept.speech.fields import Fields, is_stretch, segment_of, wrong_field
from transept.speech.glossary import corrected, glossary_terms
from transept.speech.options import TranscriptionOptions
from transept.speech.output.broken_rules import BrokenRule, rules_broken
from transept.speech.output.subtitles import SubtitleLayout
from transept.speech.output.writers import FileFormat, TextFormat, format_transcript, write_transcript
from transept.speech.paragraphs import Paragraph, Passage, paragraphs
from transept.speech.reading import SPEAKERS_IN_TEXT, name_of, read_transcript
from transept.speech.redaction import NAMES, FindNames, redacted, redacted_kinds
from transept.speech.segments import Segment
from transept.speech.translation import Translate, translated
from transept.speech.word_breaks import whole_text

if TYPE_CHECKING:
    from transept.speech.option_types import SubtitleKeywords


class DetectedLanguage(NamedTuple):
    """The language of a recording.

    language: code, such as ``"en"``. probability: of that language, from the audio alone. probabilities: of all
    languages by code, likewise. The text may decide for a language that is not the most probable one.
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
    audio, a silent track, ...), each with the time at which it begins, and hotwords without room in the prompt; each
    continues a sentence that begins "the recording is".
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
    speakers_in_text: True if `read` found the speakers in the texts of subtitles, as in ``Anna: Hello.``; a layout by
    rules then puts them back, since it names no speakers.
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
    speakers_in_text: bool = False

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
        segments = [segment_of(each, index) for index, each in enumerate(fields.objects("segments"))]
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
                for begin, end in fields.items("missed_speech", is_stretch, "a list of two times")
            ],
            warnings=fields.texts("warnings"),
            reason=fields.text("reason", "") or None,
        )

    @classmethod
    def read(cls, file: str | Path | BinaryIO, format: str | None = None) -> Transcript:
        """Return the transcript in a file, or in an open binary file: JSON, or subtitles.

        format: one of READ_FORMATS; None: by the suffix of the path, or the beginning of an open file. json is
        Transept's, openai-whisper's, faster-whisper's, WhisperX's, whisper.cpp's or OpenAI's.
        Subtitles keep the ends of their lines. If all of them, or half and one name twice, begin with ``Name:``, the
        names are speakers.
        Raises ParameterError for a file that is not a transcript, and OSError for one that cannot be opened.
        """
        given = read_transcript(file, format)
        try:
            return dataclasses.replace(cls.from_dict(given), speakers_in_text=given.get(SPEAKERS_IN_TEXT) is True)
        except ParameterError as error:
            raise error.at(f"cannot read {name_of(file)}") from None

    def __iter__(self) -> Iterator[Segment]:
        """The segments, in order of time."""
        return iter(self.segments)

    def shifted(self, seconds: float) -> Transcript:
        """Return the transcript moved by some seconds, earlier if negative. Segments that end before 0 are dropped."""
        return self._moved(editing.shifted(self.segments, seconds), seconds)

    def renamed(self, names: Mapping[str, str] | Sequence[str]) -> Transcript:
        """Return the transcript with other names of speakers.

        names: such as ``{"SPEAKER_00": "Anna"}``, or names in the order in which the speakers first speak.
        Raises ParameterError for a speaker that it does not have, and for more names than speakers.
        """
        return self.with_segments(editing.renamed(self.segments, names))

    def merged(self, other: Transcript, at: float | None = None) -> Transcript:
        """Return the transcript with another one's segments, in order of time.

        at: where the other recording begins in this one, in seconds; None: at the end of this one. Speakers keep their
        names, so equal names become one speaker; `renamed` tells them apart.
        """
        if not isinstance(other, Transcript):
            raise wrong_field("other", "a Transcript", other)
        later = other.shifted(self.duration if at is None else editing.checked_seconds("at", at))
        return dataclasses.replace(
            self.with_segments(editing.merged(self.segments, later.segments)),
            duration=max(self.duration, later.duration),
            duration_after_vad=max(self.duration_after_vad, later.duration_after_vad),
            missed_speech=sorted([*self.missed_speech, *later.missed_speech]),
            warnings=[*self.warnings, *later.warnings],
            speakers_in_text=self.speakers_in_text or later.speakers_in_text,
        )

    def split(self, index: int, *, word: int | None = None, time: float | None = None) -> Transcript:
        """Return the transcript with a segment cut in two, before a word (its index in the segment) or at a time."""
        return self.with_segments(editing.split(self.segments, index, word, time))

    def joined(self, first: int, last: int) -> Transcript:
        """Return the transcript with the segments from one index to another, both included, as one segment.

        Its speaker is the first one's.
        """
        return self.with_segments(editing.joined(self.segments, first, last))

    def replaced(self, index: int, text: str) -> Transcript:
        """Return the transcript with another text of a segment, whose unchanged words keep their times."""
        return self.with_segments(editing.replaced(self.segments, index, text))

    def corrected(self, glossary: Mapping[str, str] | Path | str) -> Transcript:
        """Return the transcript with right spellings of terms, like the transcription option glossary.

        glossary: a dict ``{"wrong": "right"}``; the Path of a file of lines ``wrong = right``; or such lines.
        """
        terms = glossary_terms("glossary", glossary)
        return self.with_segments([corrected(segment, terms) for segment in self.segments])

    def redacted(self, kinds: Sequence[str] | str, find_names: FindNames | None = None) -> Transcript:
        """Return the transcript with ``[number]`` in place of a number, and so on, and without tokens.

        kinds: some of numbers, phones, emails, urls and names. find_names: returns the start and the end of each name;
        called with a segment's text and language. None: the installed plugin does it.
        Raises ParameterError for another kind, and for names without a plugin.
        """
        checked = redacted_kinds("redact", kinds)
        if NAMES in checked and find_names is None:
            find_names = find_name_finder(discover())
        edited = self.with_segments(
            [redacted(segment, checked, find_names, self.language) for segment in self.segments]
        )
        text = whole_text(segment.text for segment in edited.segments)
        return dataclasses.replace(edited, text=text)

    def with_estimated_words(self) -> Transcript:
        """Return the transcript with words in every segment. Words without times share their segment's by length.

        Words end before the next segment of their speaker. Segments that start together share their time.
        """
        return self.with_segments(editing.with_words(self.segments))

    def between(self, start: float, end: float) -> Transcript:
        """Return the speech from one time to another, in seconds. Times stay; `shifted` moves them to 0."""
        return self.with_segments(editing.between(self.segments, start, end))

    def translated(self, translate: Translate, language: str = "") -> Transcript:
        """Return the transcript in another language, with the times of this one and without words.

        translate: called once with a list of sentences, which may take several segments; returns their translations in
        order. language: code of the translation. Raises ParameterError if another number of texts is returned.
        """
        edited = self.with_segments(translated(self.segments, translate))
        return dataclasses.replace(edited, language=language, language_probability=None, language_probabilities={})

    def chapters(self, seconds: float = LONGEST_CHAPTER) -> list[Passage]:
        """Return the text in chapters of up to `seconds`, cut at the longest pauses."""
        return chapters(
            self.segments, editing.checked_seconds("seconds", seconds, lowest=SHORTEST_CHAPTER, most=math.inf)
        )

    def paragraphs(self) -> list[Paragraph]:
        """Return the text in paragraphs, which end at pauses, after sentences, and where the speaker changes."""
        return list(paragraphs(self.segments))

    def with_segments(self, segments: list[Segment]) -> Transcript:
        """Return the transcript with other segments, and with their text if it differs."""
        texts = [segment.text for segment in segments]
        changed = texts != [segment.text for segment in self.segments]
        text = whole_text(texts) if changed else self.text
        return dataclasses.replace(self, segments=segments, text=text, reason=None if text else self.reason)

    def _moved(self, segments: list[Segment], seconds: float) -> Transcript:
        duration, after_vad = (max(0.0, each + seconds) for each in (self.duration, self.duration_after_vad))
        missed = [(max(0.0, begin + seconds), end + seconds) for begin, end in self.missed_speech if end + seconds > 0]
        return dataclasses.replace(
            self.with_segments(segments),
            duration=duration,
            duration_after_vad=min(after_vad, duration),
            missed_speech=missed,
        )

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

    def to_str(self, format: TextFormat, **layout: Unpack[SubtitleKeywords]) -> str:
        """Return what `write` writes: the transcript as txt, srt, vtt, tsv, json, lrc, csv, ass, ttml or html.

        Raises ParameterError as `write`.
        """
        return format_transcript(format, self._shown(made := SubtitleLayout(**layout)), self.language, made)

    def to_srt(self, **layout: Unpack[SubtitleKeywords]) -> str:
        """Return the transcript as SubRip subtitles. layout, errors: see `write`."""
        return self.to_str("srt", **layout)

    def to_vtt(self, **layout: Unpack[SubtitleKeywords]) -> str:
        """Return the transcript as WebVTT subtitles. layout, errors: see `write`."""
        return self.to_str("vtt", **layout)

    def write(
        self, file: str | Path | IO[Any], format: FileFormat | None = None, **layout: Unpack[SubtitleKeywords]
    ) -> None:
        """Write the transcript in one of openai-whisper's formats, txt, srt, vtt, tsv or json, or in another one.

        The others are lrc, csv, ass (karaoke), ttml (IMSC), html (a page of paragraphs), and docx, which needs
        transept[docx].

        file: a path; or an open file, of text or of bytes, which stays open, such as ``sys.stdout``.
        format: None takes it from the suffix of the path, or of the open file's name.
        layout: of subtitles: style, max_line_width and others; see SubtitleLayout. All need a transcript with
            word_timestamps. ass shows karaoke of such a transcript, and lrc and ttml have no highlight_words. Formats
            other than subtitles ignore the layout.
        Raises ParameterError for an unknown format or layout, and for a layout without words; MissingPackageError for
        docx without python-docx; OSError if the file cannot be written.
        """
        write_transcript(file, format, self._shown(made := SubtitleLayout(**layout)), self.language, made)

    def broken_rules(self, **layout: Unpack[SubtitleKeywords]) -> list[BrokenRule]:
        """Return the rules of a layout that its subtitles break, for example because the speech is too fast.

        Without a style, only the given rules are checked.
        layout, errors: see `write`.
        """
        return rules_broken(self._shown(made := SubtitleLayout(**layout)), made, self.language)

    def _shown(self, layout: SubtitleLayout) -> list[Segment]:
        """Return the segments to write."""
        is_text = self.speakers_in_text and layout.styled
        return editing.with_speakers_in_text(self.segments) if is_text else self.segments
