"""Subtitles from segments: the words, the line breaks, the start and the end of each subtitle.

Called by the writers of files. The plain layout, in this module, is openai-whisper's, but words are never broken and
have a duration (`transept.speech.word_breaks`). `styled_layout` has the layout by rules. `transept.compat.whisper` lays
out openai-whisper's own words with `fill_subtitles` and `cues_of`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from transept.errors import ParameterError
from transept.options import Option, declared, declares_options, refusal, take_options
from transept.speech.output.break_costs import held_together
from transept.speech.output.function_words import language_of
from transept.speech.output.styled_layout import Subtitle, lay_out
from transept.speech.output.styles import SubtitleRules, rules_of_style
from transept.speech.segments import Segment, Word
from transept.speech.word_breaks import SHORTEST, lengthened, may_break, whole_words

UNBOUNDED = 1000  # characters per line and words per subtitle at most, and if the layout does not limit them
CUE_PAUSE = 3.0  # seconds between the starts of two words at which filled subtitles are cut
MOST_LINES = 100  # of a subtitle
LONGEST = 3600.0  # seconds, of every rule on times
BLANK_LINES = re.compile(r"[\r\n][ \t\r\n]*")  # would end a subtitle in its file


@declares_options("subtitles have no option")
@dataclass(frozen=True)
class SubtitleLayout:
    """Layout of words as subtitles. Every option needs the times of words.

    The style "plain" is openai-whisper's layout. Any other style, and any option after max_words_per_line, lays words
    out by rules. The style sets the rules, and options replace single ones.
    Raises ParameterError for unknown, invalid or contradictory options.
    """

    style: Annotated[
        Literal["plain", "netflix", "bbc", "youtube"],
        Option(
            "publisher whose rules subtitles keep: netflix, bbc or youtube; plain: openai-whisper's layout",
            metavar="STYLE",
        ),
    ] = "plain"

    highlight_words: Annotated[bool, Option("underline each word while it is spoken")] = False
    max_line_width: Annotated[int | None, Option("characters of a line at most", metavar="N", ge=1, le=UNBOUNDED)] = (
        None
    )
    max_line_count: Annotated[
        int | None,
        Option(
            "lines of a subtitle at most; needs --max-line-width or --style",
            "With --max-line-width, subtitles are filled up across segments.",
            metavar="N",
            ge=1,
            le=MOST_LINES,
        ),
    ] = None
    max_words_per_line: Annotated[
        int | None, Option("words of a subtitle at most; not with --max-line-count", metavar="N", ge=1, le=UNBOUNDED)
    ] = None
    max_chars_per_second: Annotated[
        float | None,
        Option("characters of a subtitle for each second that it is shown, at most", metavar="N", ge=1, le=1000),
    ] = None
    max_words_per_minute: Annotated[
        float | None,
        Option("words of a subtitle for each minute that it is shown, at most", metavar="N", ge=10, le=10_000),
    ] = None
    min_duration: Annotated[float | None, Option("seconds of a subtitle at least", metavar="S", ge=0, le=LONGEST)] = (
        None
    )
    max_duration: Annotated[float | None, Option("seconds of a subtitle at most", metavar="S", ge=0.1, le=LONGEST)] = (
        None
    )
    min_gap: Annotated[
        float | None, Option("seconds between two subtitles at least", metavar="S", ge=0, le=LONGEST)
    ] = None
    close_gaps: Annotated[
        float | None,
        Option("shorten gaps of fewer seconds to --min-gap by ending subtitles later", metavar="S", ge=0, le=LONGEST),
    ] = None
    linger: Annotated[
        float | None,
        Option(
            "seconds that a subtitle stays after its last word, if the next one starts late enough",
            "It stays longer if other rules need it.",
            metavar="S",
            ge=0,
            le=LONGEST,
        ),
    ] = None

    def __post_init__(self) -> None:
        take_options(self)
        if not self.styled and self.max_line_count is not None and self.max_line_width is None:
            raise refusal(self, "{max_line_count} needs the width of a line; set {max_line_width}")
        if not self.styled and self.max_line_count is not None and self.max_words_per_line is not None:
            raise refusal(self, "{max_line_count} fills each subtitle with words; leave {max_words_per_line} out")
        rules = self.rules("")
        if rules.max_duration is not None and rules.min_duration > rules.max_duration:
            raise refusal(
                self,
                f"subtitles would last at least {rules.min_duration:.3g} s and at most {rules.max_duration:.3g} s; set "
                "another {min_duration} or {max_duration}",
                "max_duration" if self.min_duration is None else "min_duration",
            )

    @property
    def needs_words(self) -> bool:
        """True if any option is set; a transcript then needs the times of its words."""
        return self != SubtitleLayout()

    @property
    def styled(self) -> bool:
        """True if words are laid out by rules."""
        of_rules = (self.max_chars_per_second, self.max_words_per_minute, self.min_duration, self.max_duration)
        return self.style != "plain" or {*of_rules, self.min_gap, self.close_gaps, self.linger} != {None}

    def rules(self, language: str) -> SubtitleRules:
        """Return the rules of the style in a language, with the given ones in their place."""
        own = {field.name: getattr(self, field.name, None) for field in dataclasses.fields(SubtitleRules)}
        given = {name: value for name, value in own.items() if value is not None}
        return dataclasses.replace(rules_of_style(self.style, language), **given)

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
    segments: Sequence[Segment],
    layout: SubtitleLayout,
    language: str,
    *,
    named: bool = True,
    escape: Callable[[str], str] = str,
) -> Iterator[Cue]:
    """Return the subtitles of a recording in order; each has text and a duration.

    language: of the transcript; a code, or "". named: True if the file shows a speaker's name in the first line,
    where it counts towards the width. A layout by rules marks two speakers by dashes, without names. escape:
    turns text into the file's markup.
    Segments with words are laid out; each segment without words is one subtitle.
    Raises ParameterError for a layout of words whose times are unknown.
    """
    if not has_words(segments):
        given = [each.name for each in declared(SubtitleLayout).values() if getattr(layout, each.name) != each.default]
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
    in_text = any(each.speaker and each.text.lstrip().startswith(each.attribution) for each in segments)
    for subtitle in whole_subtitles(segments, layout, language, named=named):
        words = [dataclasses.replace(word, word=escape(word.word)) for word in subtitle.words]
        speaker = None if layout.styled and (named or in_text) else subtitle.speaker
        yield from cues_of(dataclasses.replace(subtitle, words=words, speaker=speaker), layout)


def whole_subtitles(
    segments: Sequence[Segment], layout: SubtitleLayout, language: str, *, named: bool
) -> Iterator[Subtitle]:
    """Return subtitles of whole words, each with a duration. language, named: see `make_cues`."""
    whole = [dataclasses.replace(segment, words=_own_words(segment)) for segment in segments]
    code = language_of((segment.text for segment in segments), language)
    if layout.styled:
        yield from lay_out(whole, layout.rules(code))
        return
    for words, speaker in fill_subtitles(whole, layout, named=named):
        taken = 0 if speaker is None or not named else len(speaker) + len(": ")
        yield subtitle_of(without_orphan(lengthened(words), layout.max_line_width or UNBOUNDED, taken, code), speaker)


def without_orphan(words: list[Word], width: int, taken: int, language: str) -> list[Word]:
    """Break the last two lines of a subtitle at another place if the last one is a single short word.

    width: of a line, in characters. taken: width of the speaker's name in the first line. The new lines are as even as
    they can be, and keep an article with its noun, and the parts of a number or a name together.
    """
    starts = [index for index, word in enumerate(words) if index == 0 or word.word.startswith("\n")]
    if len(starts) < 2 or starts[-1] < len(words) - 1 or 3 * len(words[-1].word.strip()) > width:
        return words
    begin = starts[-2]
    if any(word.word[:1] != " " for word in words[begin + 1 : -1]):  # without blanks, any character may begin a line
        return words
    texts = [word.word.strip() for word in words[begin:]]
    places = []
    for place in range(1, len(texts) - 1):
        first = len(" ".join(texts[:place])) + (taken if begin == 0 else 0)
        second = len(" ".join(texts[place:]))
        held = held_together(texts[place - 1], texts[place], language, begins_sentence=False)
        if max(first, second) <= width:
            places.append((held, abs(first - second), place))
    if not places:
        return words
    start = begin + min(places)[2]
    replaced = {start: f"\n{words[start].word.strip()}", len(words) - 1: f" {texts[-1]}"}
    return [dataclasses.replace(word, word=replaced.get(index, word.word)) for index, word in enumerate(words)]


def subtitle_of(words: list[Word], speaker: str | None) -> Subtitle:
    """Return a subtitle that is shown from its first word's start to its last word's end."""
    return Subtitle(words, speaker, _milliseconds(words[0].start), _milliseconds(words[-1].end))


def _own_words(segment: Segment) -> list[Word]:
    """Return the whole words of a segment, each with a duration; the first has a leading blank if words have them."""
    words = lengthened(whole_words(segment.words or ()))
    if words and may_break("x", words[0].word):  # after any letter
        return words
    return [dataclasses.replace(word, word=f" {word.word}") for word in words[:1]] + words[1:]


def cues_of(subtitle: Subtitle, layout: SubtitleLayout) -> Iterator[Cue]:
    """Return one cue for a subtitle, or with highlight_words one for each word and each pause."""
    if layout.highlight_words:
        yield from _highlighted(subtitle)
    else:
        text = "".join(each.word for each in subtitle.words)
        yield Cue(subtitle.start, subtitle.end, text, subtitle.speaker)


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


def _highlighted(subtitle: Subtitle) -> Iterator[Cue]:
    """Return a copy of the subtitle for each word, with the word underlined, and for each pause."""
    texts, speaker = [word.word for word in subtitle.words], subtitle.speaker
    done = subtitle.start
    for index, word in enumerate(subtitle.words):
        start, end = _milliseconds(word.start), _milliseconds(word.end)
        if start != done:
            yield Cue(done, start, "".join(texts), speaker)
        underlined = re.sub(r"^(\s*)(.*)$", r"\1<u>\2</u>", texts[index])
        yield Cue(start, end, "".join([*texts[:index], underlined, *texts[index + 1 :]]), speaker)
        done = end
    if done < subtitle.end:
        yield Cue(done, subtitle.end, "".join(texts), speaker)


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000.0)
