"""Subtitles from segments: which words a subtitle shows, where its lines break, from when until when.

Called by `transept.speech.output.writers` and `advanced_substation`, which write them. The rules are openai-whisper's.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from transept.errors import ParameterError, suggest
from transept.speech.segments import Segment, Word

UNBOUNDED = 1000  # characters a line, words a subtitle, where the layout leaves them open
CUE_PAUSE = 3.0  # seconds between the starts of two words after which subtitles that are filled up are cut


@dataclass(frozen=True)
class SubtitleLayout:
    """How words are laid out as subtitles. All of it needs the times of words.

    highlight_words: a subtitle for each word as it is said, which underlines it.
    max_line_width: characters of a line at most. max_line_count: lines of a subtitle at most; has an effect only with
        max_line_width, and then subtitles are filled up across segments.
    max_words_per_line: words of a subtitle at most; has no effect where subtitles are filled up.

    Raises ParameterError for a number below 1, and for a highlight_words that is not True or False.
    """

    highlight_words: bool = False
    max_line_width: int | None = None
    max_line_count: int | None = None
    max_words_per_line: int | None = None

    @classmethod
    def of(cls, **layout: bool | int | None) -> SubtitleLayout:
        """A layout from keywords. Raises ParameterError for an unknown one."""
        known = [field.name for field in dataclasses.fields(cls)]
        for name in layout:
            if name not in known:
                raise ParameterError(f"subtitles have no option {name!r}.{suggest(name, known)}")
        return cls(**layout)  # type: ignore[arg-type]  # each field checks its own

    def __post_init__(self) -> None:
        if not isinstance(self.highlight_words, bool):
            raise ParameterError(f"highlight_words must be True or False, not {self.highlight_words!r}")
        for name in ("max_line_width", "max_line_count", "max_words_per_line"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ParameterError(f"{name} is {value!r}; it must be a whole number from 1, or None")

    @property
    def fills_up(self) -> bool:
        """Whether subtitles take words of several segments."""
        return self.max_line_width is not None and self.max_line_count is not None


@dataclass(frozen=True)
class Cue:
    """One subtitle. start, end: milliseconds from the begin of the recording. speaker: None where nobody knows."""

    start: int
    end: int
    text: str
    speaker: str | None = None

    @property
    def attributed(self) -> str:
        """The text as it is read, after its speaker's name."""
        return self.text if self.speaker is None else f"{self.speaker}: {self.text}"


def make_cues(segments: Sequence[Segment], layout: SubtitleLayout) -> Iterator[Cue]:
    """The subtitles of a recording in order.

    Segments with words are laid out; of segments without, each is one subtitle.
    Raises ParameterError when the layout asks for something and there are no words.
    """
    if not has_words(segments):
        _refuse_layout_without_words(layout)
        for segment in segments:
            text = segment.text.strip().replace("-->", "->")  # the arrow between two times must stay the only one
            yield Cue(_milliseconds(segment.start), _milliseconds(segment.end), text, segment.speaker)
        return
    for words, speaker in fill_subtitles(segments, layout):
        if layout.highlight_words:
            yield from _highlighted(words, speaker)
        else:
            text = "".join(each.word for each in words)
            yield Cue(_milliseconds(words[0].start), _milliseconds(words[-1].end), text, speaker)


def _refuse_layout_without_words(layout: SubtitleLayout) -> None:
    given = [field.name for field in dataclasses.fields(layout) if getattr(layout, field.name)]
    if given:
        raise ParameterError(
            f"{given[0]} lays out words, but this transcript has no times of words; "
            "transcribe with word_timestamps=True"
        )


def has_words(segments: Sequence[Segment]) -> bool:
    """Whether the times of words are known, so that they can be laid out."""
    return all(segment.words is not None for segment in segments)


def fill_subtitles(segments: Sequence[Segment], layout: SubtitleLayout) -> Iterator[tuple[list[Word], str | None]]:
    """The words of each subtitle, and its speaker.

    The text of a word that begins a line has no leading blank but a line feed. A speaker's name counts as part of the
    first line.
    """
    width = layout.max_line_width or UNBOUNDED
    subtitle: list[Word] = []
    speaker: str | None = None
    length = 0  # characters of the present line
    lines = 1
    last_start = next((word.start for segment in segments for word in segment.words or ()), 0.0)
    for segment, word, begins_group in _grouped(segments, layout.max_words_per_line or UNBOUNDED):
        pause = layout.fills_up and word.start - last_start > CUE_PAUSE
        # A group begins with each segment, so nothing but that can begin with another speaker.
        next_group = begins_group and bool(subtitle) and not (layout.fills_up and segment.speaker == speaker)
        text = word.word
        if length and length + len(text) <= width and not pause and not next_group:
            length += len(text)
        else:
            text = text.strip()
            new_length = len(text)
            full = layout.max_line_count is not None and (pause or lines >= layout.max_line_count)
            if next_group or (subtitle and full):
                yield subtitle, speaker
                subtitle, lines = [], 1
            elif length:
                lines += 1
                text = "\n" + text
            if not subtitle:
                speaker = segment.speaker
                new_length += len(segment.attribution)
            length = new_length
        subtitle.append(dataclasses.replace(word, word=text))
        last_start = word.start
    if subtitle:
        yield subtitle, speaker


def _grouped(segments: Iterable[Segment], size: int) -> Iterator[tuple[Segment, Word, bool]]:
    """All words, each with its segment and whether it begins a group: a segment, or a run of so many words in one."""
    for segment in segments:
        for index, word in enumerate(segment.words or ()):
            yield segment, word, index % size == 0


def _highlighted(words: Sequence[Word], speaker: str | None) -> Iterator[Cue]:
    """The same subtitle again and again, each word underlined in its time, none between words."""
    texts = [word.word for word in words]
    done = _milliseconds(words[0].start)
    for index, word in enumerate(words):
        start, end = _milliseconds(word.start), _milliseconds(word.end)
        if start != done:
            yield Cue(done, start, "".join(texts), speaker)
        underlined = re.sub(r"^(\s*)(.*)$", r"\1<u>\2</u>", texts[index])
        yield Cue(start, end, "".join([*texts[:index], underlined, *texts[index + 1 :]]), speaker)
        done = end


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000.0)
