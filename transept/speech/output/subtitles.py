"""Subtitles from segments: the words, the line breaks, the start and the end of each subtitle.

Called by `transept.speech.output.writers` and `advanced_substation`, which write them. The layout is openai-whisper's,
but words are never broken and have a duration (`transept.speech.word_breaks`).
`transept.compat.whisper` lays out openai-whisper's own words with `fill_subtitles` and `cues_of_words`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from transept.errors import ParameterError
from transept.options import Option, declares_options, refusal, take_options
from transept.speech.segments import Segment, Word
from transept.speech.word_breaks import SHORTEST, lengthened, may_break, whole_words

UNBOUNDED = 1000  # characters per line and words per subtitle if the layout does not limit them
CUE_PAUSE = 3.0  # seconds between the starts of two words at which filled subtitles are cut
BLANK_LINES = re.compile(r"[\r\n][ \t\r\n]*")  # would end a subtitle in its file


@declares_options("subtitles have no option")
@dataclass(frozen=True)
class SubtitleLayout:
    """How words are laid out as subtitles. Every option needs the times of words.

    Raises ParameterError for unknown, invalid or contradictory options.
    """

    highlight_words: Annotated[bool, Option("underline each word while it is spoken")] = False
    max_line_width: Annotated[int | None, Option("characters of a line at most", metavar="N", ge=1)] = None
    max_line_count: Annotated[
        int | None,
        Option(
            "lines of a subtitle at most; needs --max-line-width",
            "With both, subtitles are filled up across segments.",
            metavar="N",
            ge=1,
        ),
    ] = None
    max_words_per_line: Annotated[
        int | None, Option("words of a subtitle at most; not with --max-line-count", metavar="N", ge=1)
    ] = None

    def __post_init__(self) -> None:
        take_options(self)
        if self.max_line_count is not None and self.max_line_width is None:
            raise refusal(self, "{max_line_count} needs the width of a line; set {max_line_width}")
        if self.max_line_count is not None and self.max_words_per_line is not None:
            raise refusal(self, "{max_line_count} fills each subtitle with words; leave {max_words_per_line} out")

    @property
    def needs_words(self) -> bool:
        """True if any option is set; a transcript then needs the times of its words."""
        return self != SubtitleLayout()

    @property
    def fills_up(self) -> bool:
        """True if subtitles take words of several segments."""
        return self.max_line_width is not None and self.max_line_count is not None


@dataclass(frozen=True)
class Cue:
    """One subtitle. start, end: milliseconds from the start of the recording. speaker: None if it is unknown."""

    start: int
    end: int
    text: str
    speaker: str | None = None

    @property
    def attributed(self) -> str:
        """The text after its speaker's name."""
        return self.text if self.speaker is None else f"{self.speaker}: {self.text}"


def make_cues(
    segments: Sequence[Segment], layout: SubtitleLayout, *, named: bool = True, escape: Callable[[str], str] = str
) -> Iterator[Cue]:
    """Return the subtitles of a recording in order; each has text and a duration.

    named: True if the file shows a speaker's name in the first line, where it counts towards the width. escape: turns
    text into the file's markup.
    Segments with words are laid out; each segment without words is one subtitle.
    Raises ParameterError for a layout of words whose times are unknown.
    """
    if not has_words(segments):
        given = [field.name for field in dataclasses.fields(layout) if getattr(layout, field.name)]
        if given:
            raise ParameterError(
                f"{{{given[0]}}} lays out words, but this transcript has no word times; transcribe with "
                "{word_timestamps=True}",
                param=given[0],
                others=["word_timestamps"],
            )
        for segment in segments:
            if text := BLANK_LINES.sub("\n", segment.text.strip()):
                end = max(segment.end, segment.start + SHORTEST)
                yield Cue(_milliseconds(segment.start), _milliseconds(end), escape(text), segment.speaker)
        return
    for words, speaker in whole_subtitles(segments, layout, named=named):
        escaped = [dataclasses.replace(word, word=escape(word.word)) for word in words]
        yield from cues_of_words(escaped, speaker, layout)


def whole_subtitles(
    segments: Sequence[Segment], layout: SubtitleLayout, *, named: bool
) -> Iterator[tuple[list[Word], str | None]]:
    """Return the whole words of each subtitle, each with a duration, and its speaker. named: see `make_cues`."""
    whole = [dataclasses.replace(segment, words=_own_words(segment)) for segment in segments]
    for words, speaker in fill_subtitles(whole, layout, named=named):
        yield lengthened(words), speaker


def _own_words(segment: Segment) -> list[Word]:
    """Return the whole words of a segment, each with a duration; the first has a leading blank if words have them."""
    words = lengthened(whole_words(segment.words or ()))
    if words and may_break("x", words[0].word):  # after any letter
        return words
    return [dataclasses.replace(word, word=f" {word.word}") for word in words[:1]] + words[1:]


def cues_of_words(words: Sequence[Word], speaker: str | None, layout: SubtitleLayout) -> Iterator[Cue]:
    """Return one subtitle for the words, or with highlight_words one for each word and each pause."""
    if layout.highlight_words:
        yield from _highlighted(words, speaker)
    else:
        text = "".join(each.word for each in words)
        yield Cue(_milliseconds(words[0].start), _milliseconds(words[-1].end), text, speaker)


def has_words(segments: Sequence[Segment]) -> bool:
    """True if all segments have the times of their words."""
    return all(segment.words is not None for segment in segments)


def fill_subtitles(
    segments: Sequence[Segment], layout: SubtitleLayout, *, named: bool
) -> Iterator[tuple[list[Word], str | None]]:
    """Return the words of each subtitle, and its speaker. named: see `make_cues`.

    A word that begins a line has a leading line feed instead of a leading blank.
    """
    width = layout.max_line_width or UNBOUNDED
    subtitle: list[Word] = []
    speaker: str | None = None
    length = 0  # characters of the current line
    lines = 1
    last_start = next((word.start for segment in segments for word in segment.words or ()), 0.0)
    for segment, word, begins_group in _grouped(segments, layout.max_words_per_line or UNBOUNDED):
        pause = layout.fills_up and word.start - last_start > CUE_PAUSE
        # Each segment begins a new group, so the speaker only changes between groups.
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
                new_length += len(segment.attribution) if named else 0
            length = new_length
        subtitle.append(dataclasses.replace(word, word=text))
        last_start = word.start
    if subtitle:
        yield subtitle, speaker


def _grouped(segments: Iterable[Segment], size: int) -> Iterator[tuple[Segment, Word, bool]]:
    """Yield all words with their segments; and True for the first word of a segment, and of each `size` words in it."""
    for segment in segments:
        for index, word in enumerate(segment.words or ()):
            yield segment, word, index % size == 0


def _highlighted(words: Sequence[Word], speaker: str | None) -> Iterator[Cue]:
    """Return a copy of the subtitle for each word, with the word underlined, and for each pause."""
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
