"""Where a window's words are cut into segments: between sentences and at long pauses.

For batched mode, whose models write no timestamps. Knows nothing of models or samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from transept.speech.timing.words import SENTENCE_ENDS, WordTiming
from transept.speech.word_breaks import may_break

LONG_PAUSE = 1.0  # seconds between two words that end a segment, whatever was said
LONGEST_SEGMENT = 10.0  # seconds; what is longer is cut in the middle of a sentence, as subtitles must be


def sentences(words: Sequence[WordTiming], pauses: Sequence[float]) -> Iterator[Sequence[WordTiming]]:
    """The words, cut after the end of each sentence that a pause follows, and wherever the pause is long.

    words: in order, with their punctuation. pauses: seconds of silence after each word but the last. A mark without a
    pause does not end a sentence, because it may end an abbreviation. The parts of one word stay together.
    """
    begin = 0
    for index, pause in enumerate(pauses):
        ends = words[index].word.rstrip("\"'”’)] ").endswith(tuple(SENTENCE_ENDS))  # noqa: RUF001
        if (pause >= LONG_PAUSE or (pause > 0 and ends)) and _may_cut(words, index):
            yield from _short_enough(words[begin : index + 1], pauses[begin:index])
            begin = index + 1
    yield from _short_enough(words[begin:], pauses[begin:])


def _may_cut(words: Sequence[WordTiming], index: int) -> bool:
    """True if the word at an index ends a whole word."""
    return may_break(words[index].word, words[index + 1].word)


def _short_enough(words: Sequence[WordTiming], pauses: Sequence[float]) -> Iterator[Sequence[WordTiming]]:
    """The words, cut at the longest pause, not near the ends if it can be, until no part is over LONGEST_SEGMENT."""
    cuts = [index for index in range(len(pauses)) if _may_cut(words, index)]
    if not cuts or words[-1].end - words[0].start <= LONGEST_SEGMENT:
        yield words
        return

    def merit(index: int) -> tuple[bool, float, float]:
        off_middle = abs(index + 1 - len(words) / 2)
        return off_middle <= len(words) / 4, pauses[index], -off_middle

    cut = max(cuts, key=merit)
    yield from _short_enough(words[: cut + 1], pauses[:cut])
    yield from _short_enough(words[cut + 1 :], pauses[cut + 1 :])
