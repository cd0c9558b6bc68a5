"""The layout of subtitles by rules: which words share a subtitle, where its lines break, and when it ends.

`transept.speech.output.subtitles` calls it. `break_costs` rates each place between two words, `styles` has the rules.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from transept.speech.output.break_costs import break_cost, held_together, is_article
from transept.speech.output.styles import SubtitleRules
from transept.speech.output.subtitle_times import NEVER, SHORTEST_MS, SubtitleTimes, at_least
from transept.speech.segments import Segment, Word
from transept.speech.sentences import ends_sentence
from transept.speech.word_breaks import SHORTEST

# Costs. A broken rule costs more than everything that makes a whole recording's layout less pleasant to read. So the
# cheapest layout breaks the fewest rules among layouts whose lines fit, whose subtitles start with their first word,
# and which keep max_duration.
BROKEN = 1e6
SUBTITLE = 40.0  # for each, so that words share one
SAME_SUBTITLE = 25.0  # two sentences without a pause
PAUSE, UNRELATED = 0.5, 400.0  # seconds between two sentences that share a subtitle only to keep a rule, and the cost
SENTENCES_APART, WORDS_APART = 1.0, 2.0  # seconds between two sentences, or two words, that never share a subtitle
ARTICLE = 0.3  # longest duration, in seconds, of an article that moves across a pause to its noun
SILENT = 50.0  # for each second above PAUSE within a sentence
TOO_SHORT, SHORTEST_SHARE = (
    100.0,
    0.25,
)  # a subtitle of no duration at all; one of this share of its needs costs as much
TWO_SPEAKERS = 100.0
CUT_SHORT = 300.0  # a subtitle that ends before its last word, to keep max_duration
LINE = 0.5  # of a break's cost, between two lines of one subtitle
UNEVEN, TOP_LONGER = 20.0, 5.0  # two lines of different lengths; a longer first line
ORPHAN, SHORT = 30.0, 1 / 3  # a line or a subtitle of one short word, beside others; its share of a line at most
DASH = "-"  # before each of two speakers' lines (Netflix, English Timed Text Style Guide, "Dual Speakers")
DEFAULT_LINES, MOST_LINES = 2, 3  # the search takes a time that grows with the lines and words of a subtitle
MOST_WORDS = 60  # of a subtitle


@dataclass(frozen=True)
class Subtitle:
    """Words that are shown together. A word that begins a line has a leading line feed. start, end: in milliseconds.

    speaker: None if it is unknown, and for two speakers, whose lines begin with a dash.
    """

    words: list[Word]
    speaker: str | None
    start: int
    end: int


def lay_out(segments: Sequence[Segment], rules: SubtitleRules) -> list[Subtitle]:
    """Return the subtitles of segments in order of time. Words must be whole, with blanks before them.

    Subtitles of simultaneous speakers overlap, unless the speakers share one.
    """
    if rules.max_line_width is None and rules.max_line_count is None:  # no rule joins words of several segments
        parts = [[segment] for segment in segments]
    else:
        parts = [list(segments)]
    passages = [passage for passage in (_Passage.of(part, rules) for part in parts) if passage.words]
    found: list[Subtitle] = []
    for passage, following in itertools.zip_longest(passages, passages[1:]):
        found += passage.subtitles(None if following is None else following.starts[0])
    return sorted(found, key=lambda subtitle: subtitle.start)


@dataclass(frozen=True)
class _Passage:
    """Words, and the tables that the search reads.

    starts, stops: of the words, in milliseconds. speakers: of each word. turns: changes of the speaker up to each.
    blanks: width of the blank before each. edges: width of all words before each, with their blanks. rooms: the same,
    in which a word that is wider than a line counts as a line. counts: blanks up to each. breaks: cost of a line's end
    before each word, including BROKEN between words that stay together. inner: cost of the place before each word
    within a subtitle.
    """

    rules: SubtitleRules
    times: SubtitleTimes
    words: list[Word]
    starts: list[int]
    stops: list[int]
    speakers: list[str | None]
    turns: list[int]
    blanks: list[float]
    edges: list[float]
    rooms: list[float]
    counts: list[int]
    breaks: list[float]
    inner: list[float]

    @classmethod
    def of(cls, segments: Sequence[Segment], rules: SubtitleRules) -> _Passage:
        words, speakers = _words_in_time(segments, rules.language)
        texts = [word.word.strip() for word in words]
        blank = rules.width(" ")
        blanks = [blank if word.word[:1].isspace() else 0.0 for word in words]
        widths, limit = [rules.width(text) for text in texts], rules.max_line_width or math.inf
        edges = [0.0, *itertools.accumulate(b + width for b, width in zip(blanks, widths, strict=True))]
        rooms = [0.0, *itertools.accumulate(b + min(width, limit) for b, width in zip(blanks, widths, strict=True))]
        counts = [*itertools.accumulate(int(blank > 0) for blank in blanks)]
        turns = [*itertools.accumulate((a != b for a, b in itertools.pairwise(speakers)), initial=0)]
        breaks, inner = [0.0], [0.0]
        begins = True  # True if the next word begins a sentence
        for index in range(1, len(words)):
            before, after = texts[index - 1], texts[index]
            pause = words[index].start - words[index - 1].end
            ends = ends_sentence(before)
            changes = speakers[index] != speakers[index - 1]
            cost = break_cost(before, after, rules.language) * max(0.2, 1 - max(0.0, pause))
            if not changes and held_together(before, after, rules.language, begins_sentence=begins):
                cost += BROKEN
            breaks.append(0.0 if changes else cost)
            inner.append(_inner_cost(pause, ends or changes))
            begins = ends or changes
        starts, stops = [round(word.start * 1000) for word in words], [round(word.end * 1000) for word in words]
        times = SubtitleTimes.of(rules)
        return cls(rules, times, words, starts, stops, speakers, turns, blanks, edges, rooms, counts, breaks, inner)

    def subtitles(self, following: int | None) -> Iterator[Subtitle]:
        """Return the subtitles with the least cost in all. following: start of the next passage.

        best[end], froms[end]: least cost of the words before `end`, and where the last subtitle begins.
        """
        total = len(self.words)
        starts = [*self.starts, NEVER if following is None else following]
        best, froms = [0.0] + [math.inf] * total, [0] * (total + 1)
        for begin in range(total):
            inner = best[begin] + SUBTITLE
            for end in range(begin + 1, total + 1):
                if end > begin + 1:
                    inner += self.inner[end - 1]
                    if inner == math.inf or not self._fits(begin, end):
                        break
                cost = inner + (self.breaks[end] if end < total else 0.0) + self._timing_cost(begin, end, starts[end])
                if end == begin + 1 and self._is_orphan(begin) and not self._is_whole(begin):
                    cost += ORPHAN
                if cost >= best[end]:
                    continue
                lines = self._lines(begin, end)
                if lines is not None and cost + lines[0] < best[end]:
                    best[end], froms[end] = cost + lines[0], begin
        ends = [total]
        while froms[ends[-1]]:
            ends.append(froms[ends[-1]])
        for begin, end in itertools.pairwise([0, *reversed(ends)]):
            yield self._subtitle(begin, end, starts[end])

    def _fits(self, begin: int, end: int) -> bool:
        """True if a subtitle of more than one word is neither too wide, nor too long, nor of more than two speakers."""
        rules = self.rules
        widest = math.inf if rules.max_line_width is None else self._most_lines * (rules.max_line_width + 1)
        return (
            end - begin <= min(rules.max_words_per_line or MOST_WORDS, MOST_WORDS)
            and self._room(begin, end) <= widest
            and self.starts[end - 1] - self.starts[begin] < self.times.longest - SHORTEST_MS
            and self.turns[end - 1] - self.turns[begin] < 2
        )

    @property
    def _most_lines(self) -> int:
        return min(self.rules.max_line_count or DEFAULT_LINES, MOST_LINES)

    def _width(self, begin: int, end: int) -> float:
        return self.edges[end] - self.edges[begin] - self.blanks[begin]

    def _room(self, begin: int, end: int) -> float:
        """Return the width that words take in several lines."""
        return self.rooms[end] - self.rooms[begin] - self.blanks[begin]

    def _needed(self, begin: int, end: int) -> int:
        """Return the shortest duration that leaves time to read a subtitle, in milliseconds."""
        dashes = 2 * self.rules.width(DASH) if self._has_two(begin, end) else 0.0
        words = 1 + self.counts[end - 1] - self.counts[begin]
        return at_least(self.rules.needed(self._width(begin, end) + dashes, words))

    def _has_two(self, begin: int, end: int) -> bool:
        """True if two speakers share a subtitle."""
        return self.turns[begin] != self.turns[end - 1]

    def _lines(self, begin: int, end: int) -> tuple[float, list[int]] | None:
        """Return the cost of a subtitle's best line breaks, and the indices of the words that follow them.

        Fewer lines are always better. Returns None if the words do not fit.
        """
        limit = self.rules.max_line_width
        if self._has_two(begin, end):
            turn = next(index for index in range(begin, end) if self.turns[index] != self.turns[begin])
            fits = all(
                limit is None or self._width(first, last) + self.rules.width(DASH) <= limit
                for first, last in ((begin, turn), (turn, end))
            )
            return (TWO_SPEAKERS, [turn]) if fits and self._most_lines > 1 else None
        if limit is None or self._width(begin, end) <= limit or end == begin + 1:
            return 0.0, []
        for count in range(2, self._most_lines + 1):
            found = self._best_breaks(begin, end, count, self._width(begin, end) / count)
            if found is not None:
                return found
        return None

    def _best_breaks(
        self, begin: int, end: int, count: int, mean: float, below: float = math.inf
    ) -> tuple[float, list[int]] | None:
        """Return the cheapest way to break words into `count` lines, as `_lines` does.

        mean: width of even lines. Returns None if every way costs at least `below`.
        """
        limit = self.rules.max_line_width or math.inf
        if count == 1:
            width = self._width(begin, end)
            cost = UNEVEN * abs(width - mean) / limit + (ORPHAN if end == begin + 1 and self._is_orphan(begin) else 0.0)
            return (cost, []) if cost < below and (width <= limit or end == begin + 1) else None
        best: tuple[float, list[int]] | None = None
        for index in range(begin + 1, end):
            width = self._width(begin, index)
            if width > limit and index > begin + 1:
                break
            if self._room(index, end) > (count - 1) * (limit + 1):
                continue
            cost = LINE * self.breaks[index] + UNEVEN * abs(width - mean) / limit
            if self.breaks[index] >= BROKEN:
                cost += BROKEN * (1 - LINE)
            if index == begin + 1 and self._is_orphan(begin):
                cost += ORPHAN
            # The lines after this one are as uneven as it is, except for the blanks between lines.
            if cost + UNEVEN * max(0.0, abs(width - mean) - count) / limit >= below:
                continue
            rest = self._best_breaks(index, end, count - 1, mean, below - cost)
            if rest is None:
                continue
            cost += rest[0]
            if width > self._width(index, rest[1][0] if rest[1] else end):
                cost += TOP_LONGER
            if cost < below:
                best, below = (cost, [index, *rest[1]]), cost
        return best

    def _is_orphan(self, index: int) -> bool:
        """True if a word is too short for a line of its own."""
        limit = self.rules.max_line_width
        return limit is not None and self._width(index, index + 1) <= SHORT * limit

    def _is_whole(self, index: int) -> bool:
        """True if a word is a sentence or a turn by itself."""
        return all(place in (0, len(self.words)) or self.breaks[place] == 0.0 for place in (index, index + 1))

    def _timing_cost(self, begin: int, end: int, following: int) -> float:
        """Return the cost of the rules that a subtitle breaks with its best possible end."""
        times, needed = self.times, self._needed(begin, end)
        stop, cost = self._end(begin, end, needed, following), 0.0
        lasts = stop - self.starts[begin]
        if lasts < needed:
            cost += BROKEN * (1 + (needed > times.shortest > lasts))
            cost += TOO_SHORT * min(1.0, (1 - lasts / needed) / (1 - SHORTEST_SHARE))
        if self.stops[end - 1] - stop > max(times.gap, SHORTEST_MS):
            cost += CUT_SHORT
        gap = following - stop
        if gap < times.gap or times.gap < gap < times.close:
            cost += BROKEN
        return cost

    def _end(self, begin: int, end: int, needed: int, following: int) -> int:
        """Return the end of a subtitle, in milliseconds. following: start of the next one."""
        spoken = max(self.stops[begin:end]) if self._has_two(begin, end) else self.stops[end - 1]
        if following < spoken:  # another speaker speaks at the same time
            following = spoken + self.times.gap
        return self.times.end(self.starts[begin], spoken, needed, following)

    def _subtitle(self, begin: int, end: int, following: int) -> Subtitle:
        """Return the words of a subtitle with the line feeds and dashes of its lines."""
        found = self._lines(begin, end)
        lines = [] if found is None else found[1]
        dash = DASH if self._has_two(begin, end) else ""
        stop = self._end(begin, end, self._needed(begin, end), following)
        words = []
        for index in range(begin, end):
            text, shown = self.words[index].word, min(self.words[index].end, stop / 1000)
            if index in lines:
                text = f"\n{dash}{text.strip()}"
            elif index == begin:
                text = f"{dash}{text.strip()}"
            first = min(self.words[index].start, shown)
            words.append(dataclasses.replace(self.words[index], start=first, end=shown, word=text))
        return Subtitle(words, None if dash else self.speakers[begin], self.starts[begin], stop)


def _words_in_time(segments: Sequence[Segment], language: str) -> tuple[list[Word], list[str | None]]:
    """Return the words and the speaker of each; no word of a speaker begins before the previous one ends.

    An article before a pause is shown with its noun. Attention often finds the first word after a pause too early.
    """
    words: list[Word] = []
    speakers: list[str | None] = []
    for segment in segments:
        for word in segment.words or ():
            if words and speakers[-1] == segment.speaker and word.start < words[-1].end:
                start = words[-1].end
                word = dataclasses.replace(word, start=start, end=max(word.end, start + SHORTEST))
            words.append(word)
            speakers.append(segment.speaker)
    for index in range(len(words) - 2, -1, -1):
        word, following = words[index], words[index + 1]
        goes_on = speakers[index] == speakers[index + 1] and is_article(word.word.strip(), language)
        if goes_on and following.start - word.end >= WORDS_APART:
            lasts = min(word.end - word.start, ARTICLE)
            words[index] = dataclasses.replace(word, start=following.start - lasts, end=following.start)
    return words, speakers


def _inner_cost(pause: float, unrelated: bool) -> float:
    """Return the cost of a pause within a subtitle. unrelated: True between two sentences or speakers."""
    if pause >= (SENTENCES_APART if unrelated else WORDS_APART):
        return math.inf
    if unrelated:
        return SAME_SUBTITLE if pause < PAUSE else UNRELATED
    return SILENT * max(0.0, pause - PAUSE)
