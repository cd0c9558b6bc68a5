"""The rules of subtitles that a list of cues breaks, for a report.

``Transcript.broken_rules`` and ``transept check-subtitles`` call it.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from transept.speech.output.break_costs import held_together
from transept.speech.output.function_words import language_of
from transept.speech.output.styled_layout import DASH
from transept.speech.output.styles import SubtitleRules
from transept.speech.output.subtitles import Cue, SubtitleLayout, make_cues
from transept.speech.segments import Segment
from transept.speech.sentences import ends_sentence

TOLERANCE = 0.010  # seconds; the resolution of ass
LABEL_WORDS = 3  # at most, of a speaker's name before a colon
AFTER = (":", DASH)  # the next word may begin a sentence, so its capital does not show a name: Anna: Hello
SPLIT = "split"  # the rule that has no number
UNITS = {  # rule -> text with the value and the limit
    "max_line_width": "{:g} characters in a line, at most {:g}",
    "max_line_count": "{:g} lines, at most {:g}",
    "max_words_per_line": "{:g} words, at most {:g}",
    "max_chars_per_second": "{:.1f} characters a second, at most {:g}",
    "max_words_per_minute": "{:.0f} words a minute, at most {:g}",
    "min_duration": "{:.2f} s long, at least {:.2f}",
    "max_duration": "{:.2f} s long, at most {:.2f}",
    "min_gap": "{:.3f} s before the next, at least {:.3f}",
    "close_gaps": "{:.3f} s before the next, none or at least {:g}",
}


@dataclass(frozen=True)
class BrokenRule:
    """A rule that a subtitle breaks.

    number: of the subtitle, from 1. start: in seconds. rule: name of its option, such as ``"max_duration"``, or
    ``"split"`` for a line that ends within a number or a name, or between an article and its noun. value, limit: the
    subtitle's number, and the number that the rule allows; for "split" the two words and None.
    """

    number: int
    start: float
    rule: str
    value: float | str
    limit: float | None

    def __str__(self) -> str:
        if isinstance(self.value, str):
            return f"a line ends between {self.value}"
        return UNITS[self.rule].format(self.value, self.limit)


def broken_rules(cues: Sequence[Cue], rules: SubtitleRules) -> list[BrokenRule]:
    """Return the rules that cues break, in their order. The cues' texts are without markup."""
    broken = []
    begins = True  # True if the next word begins a sentence
    for number, (cue, following) in enumerate(itertools.zip_longest(cues, cues[1:]), 1):
        found: list[tuple[str, float | str, float | None]] = [*_of_text(cue, rules), *_of_times(cue, following, rules)]
        lines = [line.split() for line in cue.text.split("\n")]
        continues = following is not None and following.speaker == cue.speaker
        below = following.text.split("\n")[0].split() if following is not None and continues else []
        for words, next_words in itertools.pairwise([*lines, below]):
            if parted := _split_words(words, next_words, rules.language, begins):
                found.append((SPLIT, parted, None))
            begins = not words or ends_sentence(words[-1])
        broken += [BrokenRule(number, cue.start / 1000, *each) for each in found]
    return broken


def rules_broken(segments: Sequence[Segment], layout: SubtitleLayout, language: str) -> list[BrokenRule]:
    """Return the rules of a layout that its subtitles of segments break. language, errors: see `make_cues`."""
    rules = layout.rules(language_of((segment.text for segment in segments), language))
    plain = dataclasses.replace(layout, highlight_words=False)
    return asked_rules(broken_rules(list(make_cues(segments, plain, language, named=False)), rules), layout)


def asked_rules(broken: Iterable[BrokenRule], layout: SubtitleLayout) -> list[BrokenRule]:
    """Return the broken rules that a layout asks for: with a style all, otherwise only the given ones."""
    given = [rule for rule in UNITS if layout.style != "plain" or getattr(layout, rule) is not None]
    asked = given if layout.style == "plain" else [*given, SPLIT]
    return [each for each in broken if each.rule in asked]


def summary(broken: Iterable[BrokenRule]) -> str:
    """Return how many subtitles break each rule, such as ``max_duration 2, split 1``; the most frequent first."""
    return ", ".join(f"{rule} {count}" for rule, count in Counter(each.rule for each in broken).most_common())


def _of_text(cue: Cue, rules: SubtitleRules) -> Iterator[tuple[str, float, float]]:
    """Yield the rules on characters, lines and words that a cue breaks, each with its value and limit."""
    lines, words = cue.text.split("\n"), len(cue.text.split())
    for rule, value, limit in (
        ("max_line_width", max(map(rules.width, lines)), rules.max_line_width),
        ("max_line_count", len(lines), rules.max_line_count),
        ("max_words_per_line", words, rules.max_words_per_line),
    ):
        if limit is not None and value > limit:
            yield rule, value, limit


def _of_times(cue: Cue, following: Cue | None, rules: SubtitleRules) -> Iterator[tuple[str, float, float]]:
    """Yield the rules on times that a cue breaks, each with its value and limit."""
    lasts = (cue.end - cue.start) / 1000
    characters, words = rules.characters(cue.text), len(cue.text.split())
    for rule, count, limit in (
        ("max_chars_per_second", characters, rules.max_chars_per_second),
        ("max_words_per_minute", words * 60, rules.max_words_per_minute),
    ):
        if limit is not None and count > limit * (lasts + TOLERANCE):
            yield rule, count / max(lasts, TOLERANCE), limit
    if lasts < rules.min_duration - TOLERANCE:
        yield "min_duration", lasts, rules.min_duration
    if rules.max_duration is not None and lasts > rules.max_duration + TOLERANCE:
        yield "max_duration", lasts, rules.max_duration
    if following is not None:
        gap = (following.start - cue.end) / 1000
        if gap < rules.min_gap - TOLERANCE:
            yield "min_gap", gap, rules.min_gap
        elif rules.min_gap + TOLERANCE < gap < rules.close_gaps - TOLERANCE:
            yield "close_gaps", gap, rules.close_gaps


def _begins_with_label(words: Sequence[str]) -> bool:
    """True if a line begins with the name of its speaker and a colon."""
    return words[0][:1].isupper() and any(word.endswith(":") for word in words[:LABEL_WORDS])


def _split_words(words: Sequence[str], below: Sequence[str], language: str, begins: bool) -> str | None:
    """Return the words around a line's end if they belong together. begins: True if it begins a sentence."""
    if not words or not below or below[0].startswith(DASH) or _begins_with_label(below):
        return None
    first = begins if len(words) == 1 else ends_sentence(words[-2]) or words[-2].endswith(AFTER)
    if not held_together(words[-1], below[0], language, begins_sentence=first):
        return None
    return f'"{words[-1]}" and "{below[0]}"'
