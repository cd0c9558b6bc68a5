"""The layout of subtitles by rules: which words share a subtitle, where its lines break, and when it ends.

`transept.speech.output.subtitles` calls it. `break_costs` rates each place between two words, `styles` has the rules.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from transept.speech.output.break_costs import break_cost, ends_sentence, held_together
from transept.speech.output.styles import SubtitleRules
from transept.speech.segments import Segment, Word
from transept.speech.word_breaks import SHORTEST

# Costs. A broken rule costs more than all that makes the layout of a whole recording less pleasant to read, so the
# cheapest layout breaks as few rules as any whose lines fit and whose subtitles start with their first word.
BROKEN = 1e6
SUBTITLE = 40.0  # for each, so that words share one
SAME_SUBTITLE = 25.0  # two sentences without a pause
PAUSE, UNRELATED = 0.5, 400.0  # seconds between two sentences that share a subtitle only to keep a rule, and the cost
SENTENCES_APART, WORDS_APART = 1.0, 2.0  # seconds between two sentences, or two words, that never share a subtitle
SILENT = 50.0  # for each second above PAUSE within a sentence
TOO_SHORT, SHORTEST_SHARE = (
    100.0,
    0.25,
)  # a subtitle of no duration at all; one of this share of its needs costs as much
TWO_SPEAKERS = 100.0
CUT_SHORT = 300.0  # a subtitle that ends before its last word, to keep max_duration
LINE = 0.5  # of a break's cost, between two lines of one subtitle
UNEVEN, TOP_LONGER = 20.0, 5.0  # two lines of different lengths; a longer first line
DASH = "-"  # before each of two speakers' lines (Netflix, English Timed Text Style Guide, "Dual Speakers")
DEFAULT_LINES = 2
SLACK = 0.002  # seconds; two times rounded to milliseconds


@dataclass(frozen=True)
class Subtitle:
    """Words that are shown together. A word that begins a line has a leading line feed. start, end: in milliseconds.

    speaker: None if it is unknown, and for two speakers, whose lines begin with a dash.
    """

    words: list[Word]
    speaker: str | None
    start: int
    end: int


def lay_out(segments: Sequence[Segment], rules: SubtitleRules) -> Iterator[Subtitle]:
    """Return the subtitles of segments, whose words must be whole and in order of time, with blanks before them."""
    if rules.max_line_width is None and rules.max_line_count is None:  # nothing calls for other parts than the segments
        parts = [[segment] for segment in segments]
    else:
        parts = [list(segments)]
    passages = [passage for passage in (_Passage.of(part, rules) for part in parts) if passage.words]
    for passage, following in itertools.zip_longest(passages, passages[1:]):
        yield from passage.subtitles(None if following is None else following.words[0].start)


@dataclass(frozen=True)
class _Passage:
    """Words, with what the search reads of them.

    speakers: of each word. turns: changes of the speaker up to each. blanks: width of the blank before each. edges:
    width of all words before each, with their blanks. counts: blanks up to each. breaks: cost of a line's end before
    each word, including BROKEN between words that stay together. inner: cost of the place before each word within a
    subtitle.
    """

    rules: SubtitleRules
    words: list[Word]
    speakers: list[str | None]
    turns: list[int]
    blanks: list[float]
    edges: list[float]
    counts: list[int]
    breaks: list[float]
    inner: list[float]

    @classmethod
    def of(cls, segments: Sequence[Segment], rules: SubtitleRules) -> _Passage:
        words: list[Word] = []
        speakers: list[str | None] = []
        for segment in segments:
            for word in segment.words or ():
                if words and speakers[-1] == segment.speaker and word.start < words[-1].end:
                    start = words[-1].end
                    word = dataclasses.replace(word, start=start, end=max(word.end, start + SHORTEST))
                words.append(word)
                speakers.append(segment.speaker)
        texts = [word.word.strip() for word in words]
        blanks = [rules.width(" ") if word.word[:1].isspace() else 0.0 for word in words]
        edges = [0.0, *itertools.accumulate(b + rules.width(text) for b, text in zip(blanks, texts, strict=True))]
        counts = [*itertools.accumulate(int(blank > 0) for blank in blanks)]
        turns = [*itertools.accumulate((a != b for a, b in itertools.pairwise(speakers)), initial=0)]
        breaks, inner = [0.0], [0.0]
        begins = True  # a sentence
        for index in range(1, len(words)):
            before, after = texts[index - 1], texts[index]
            pause = words[index].start - words[index - 1].end
            ends = ends_sentence(before, rules.language)
            changes = speakers[index] != speakers[index - 1]
            cost = break_cost(before, after, rules.language) * max(0.2, 1 - max(0.0, pause))
            if not changes and held_together(before, after, rules.language, begins_sentence=begins):
                cost += BROKEN
            breaks.append(0.0 if changes else cost)
            inner.append(_inner_cost(pause, ends or changes))
            begins = ends or changes
        return cls(rules, words, speakers, turns, blanks, edges, counts, breaks, inner)

    def subtitles(self, following: float | None) -> Iterator[Subtitle]:
        """Return the subtitles with the least cost in all. following: start of the next passage.

        best[end]: least cost of the words before `end`, and the beginning of the last subtitle.
        """
        total = len(self.words)
        best: list[tuple[float, int]] = [(0.0, 0)] + [(math.inf, 0)] * total
        for begin in range(total):
            inner = 0.0
            for end in range(begin + 1, total + 1):
                if end > begin + 1:
                    inner += self.inner[end - 1]
                if end > begin + 1 and not self._fits(begin, end):
                    break
                lines = self._lines(begin, end)
                if lines is None:
                    continue
                after = self.breaks[end] if end < total else 0.0
                cost = best[begin][0] + SUBTITLE + inner + after + lines[0] + self._timing_cost(begin, end, following)
                if cost < best[end][0]:
                    best[end] = (cost, begin)
        ends = [total]
        while best[ends[-1]][1]:
            ends.append(best[ends[-1]][1])
        for begin, end in itertools.pairwise([0, *reversed(ends)]):
            yield self._subtitle(begin, end, following)

    def _fits(self, begin: int, end: int) -> bool:
        """True if a subtitle of more than one word is neither too wide, nor too long, nor of more than two speakers."""
        rules = self.rules
        count = rules.max_line_count or DEFAULT_LINES
        return (
            (rules.max_line_width is None or self._width(begin, end) <= count * (rules.max_line_width + 1))
            and (rules.max_words_per_line is None or end - begin <= rules.max_words_per_line)
            and (
                rules.max_duration is None
                or self.words[end - 1].start - self.words[begin].start < rules.max_duration - SHORTEST
            )
            and self.turns[end - 1] - self.turns[begin] < 2
        )

    def _width(self, begin: int, end: int) -> float:
        return self.edges[end] - self.edges[begin] - self.blanks[begin]

    def _needed(self, begin: int, end: int) -> float:
        """Return the shortest duration of a subtitle that can be read, in seconds."""
        dashes = 2 * self.rules.width(DASH) if self._has_two(begin, end) else 0.0
        return self.rules.needed(self._width(begin, end) + dashes, 1 + self.counts[end - 1] - self.counts[begin])

    def _has_two(self, begin: int, end: int) -> bool:
        """True if two speakers share a subtitle."""
        return self.turns[begin] != self.turns[end - 1]

    def _lines(self, begin: int, end: int) -> tuple[float, list[int]] | None:
        """Return the cost of the best line breaks of a subtitle, and the words before which they are.

        None: its words do not fit into its lines. The fewest lines are the best.
        """
        limit = self.rules.max_line_width
        if self._has_two(begin, end):
            turn = next(index for index in range(begin, end) if self.turns[index] != self.turns[begin])
            fits = all(
                limit is None or self._width(first, last) + self.rules.width(DASH) <= limit
                for first, last in ((begin, turn), (turn, end))
            )
            return (TWO_SPEAKERS, [turn]) if fits and (self.rules.max_line_count or DEFAULT_LINES) > 1 else None
        if limit is None or self._width(begin, end) <= limit or end == begin + 1:
            return 0.0, []
        for count in range(2, (self.rules.max_line_count or DEFAULT_LINES) + 1):
            found = self._broken(begin, end, count, self._width(begin, end) / count)
            if found is not None:
                return found
        return None

    def _broken(self, begin: int, end: int, count: int, mean: float) -> tuple[float, list[int]] | None:
        """Return the best of the ways to break words into `count` lines. mean: width of even lines."""
        limit = self.rules.max_line_width or math.inf
        if count == 1:
            width = self._width(begin, end)
            return (UNEVEN * abs(width - mean) / limit, []) if width <= limit or end == begin + 1 else None
        best: tuple[float, list[int]] | None = None
        for index in range(begin + 1, end):
            width = self._width(begin, index)
            if width > limit and index > begin + 1:
                break
            if self._width(index, end) > (count - 1) * (limit + 1):
                continue
            rest = self._broken(index, end, count - 1, mean)
            if rest is None:
                continue
            cost = rest[0] + LINE * self.breaks[index] + UNEVEN * abs(width - mean) / limit
            if self.breaks[index] >= BROKEN:
                cost += BROKEN * (1 - LINE)
            if width > self._width(index, rest[1][0] if rest[1] else end):
                cost += TOP_LONGER
            if best is None or cost < best[0]:
                best = cost, [index, *rest[1]]
        return best

    def _timing_cost(self, begin: int, end: int, following: float | None) -> float:
        """Return the cost of the rules that a subtitle breaks with the best end that it can have."""
        rules = self.rules
        start, stop = self._times(begin, end, following)
        lasts, needed, cost = (stop - start) / 1000, self._needed(begin, end), 0.0
        if lasts < needed - SLACK:
            cost += BROKEN * (1 + (needed > rules.min_duration > lasts + SLACK))
            cost += TOO_SHORT * min(1.0, (1 - lasts / needed) / (1 - SHORTEST_SHARE))
        if self.words[end - 1].end - stop / 1000 > max(rules.min_gap, SHORTEST) + SLACK:
            cost += CUT_SHORT
        if end < len(self.words):
            gap = self.words[end].start - stop / 1000
            if gap < rules.min_gap - SLACK or rules.min_gap + SLACK < gap < rules.close_gaps - SLACK:
                cost += BROKEN
        return cost

    def _times(self, begin: int, end: int, following: float | None) -> tuple[int, int]:
        """Return the start and the end of a subtitle, in milliseconds."""
        if end < len(self.words):
            following = self.words[end].start
        first, last = self.words[begin], self.words[end - 1]
        if following is not None and following < last.end:  # another speaker speaks at the same time
            following = last.end + self.rules.min_gap
        start = round(first.start * 1000)
        return start, _end(start, last.end, self._needed(begin, end), following, self.rules)

    def _subtitle(self, begin: int, end: int, following: float | None) -> Subtitle:
        """Return the words of a subtitle with the line feeds and dashes of its lines."""
        found = self._lines(begin, end)
        lines = [] if found is None else found[1]
        dash = DASH if self._has_two(begin, end) else ""
        start, stop = self._times(begin, end, following)
        words = []
        for index in range(begin, end):
            text, shown = self.words[index].word, min(self.words[index].end, stop / 1000)
            if index in lines:
                text = f"\n{dash}{text.strip()}"
            elif index == begin:
                text = f"{dash}{text.strip()}"
            first = min(self.words[index].start, shown)
            words.append(dataclasses.replace(self.words[index], start=first, end=shown, word=text))
        return Subtitle(words, None if dash else self.speakers[begin], start, stop)


def _inner_cost(pause: float, unrelated: bool) -> float:
    """Return the cost of a pause within a subtitle. unrelated: True between two sentences or speakers."""
    if pause >= (SENTENCES_APART if unrelated else WORDS_APART):
        return 2 * BROKEN
    if unrelated:
        return SAME_SUBTITLE if pause < PAUSE else UNRELATED
    return SILENT * max(0.0, pause - PAUSE)


def _end(start: int, spoken: float, needed: float, following: float | None, rules: SubtitleRules) -> int:
    """Return the end of a subtitle in milliseconds: as late as its words need and the next subtitle allows.

    start: in milliseconds. spoken: end of its last word. needed: its shortest duration. following: the next start. All
    in seconds, as the rules.
    """
    end = max(round((spoken + rules.linger) * 1000), start + math.ceil(needed * 1000))
    longest = math.inf if rules.max_duration is None else start + math.floor(rules.max_duration * 1000)
    latest = math.inf if following is None else math.floor((following - rules.min_gap) * 1000 + 1e-6)
    if following is not None and end > (following - rules.close_gaps) * 1000:
        end = int(latest)  # without a gap that would flicker
    end = int(min(end, latest, longest))
    if following is not None and end < latest:  # max_duration left a gap that should be closed
        open_gap = math.floor((following - rules.close_gaps) * 1000)
        if spoken * 1000 <= open_gap < end and open_gap - start >= needed * 1000:
            end = open_gap
    return max(end, start + round(SHORTEST * 1000))
