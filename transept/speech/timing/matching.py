"""Which words of a known text are which of those that a model heard, and so where the text may be cut.

Called by `transept.speech.forced_alignment`. Pure text: knows nothing of models, tokens or seconds.
"""

from __future__ import annotations

import difflib
import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from transept.speech.timing.words import UNSPACED_LANGUAGES

SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])\s*")  # noqa: RUF001  full-width marks are meant


class KnownWord(NamedTuple):
    """A word of the text, or a character where there are no blanks between words. start, end: where it stands.

    unit: number of its line or sentence.
    """

    start: int
    end: int
    unit: int


def known_words(text: str, language: str) -> list[KnownWord]:
    """The words of a text in order, each with its unit: a line, or of a text of one line a sentence."""
    pattern = re.compile(r"\S" if language in UNSPACED_LANGUAGES else r"\S+")
    return [
        KnownWord(start + found.start(), start + found.end(), unit)
        for unit, (start, end) in enumerate(_units(text))
        for found in pattern.finditer(text[start:end])
    ]


def matching_places(known: Sequence[str], heard: Sequence[str]) -> list[int]:
    """For each heard word, and for the end, how many known words come before it: rising, from 0 to all of them.

    Words are the same whatever their case and punctuation. Between words that are the same, places are in proportion.
    """
    matcher = difflib.SequenceMatcher(None, [_key(word) for word in known], [_key(word) for word in heard], False)
    # The first word of a run that is the same, and its end, both in the known and the heard text.
    corners = [(0, 0)]
    for block in matcher.get_matching_blocks():  # the last one is the end of both
        corners += [(block.b, block.a), (block.b + block.size, block.a + block.size)]
    corners.append((len(heard), len(known)))
    begins = [heard_index for heard_index, _ in corners]
    places = []
    for index in range(len(heard) + 1):
        last = min(bisect_right(begins, index), len(corners) - 1)
        (before, known_before), (after, known_after) = corners[last - 1], corners[last]
        share = (index - before) / (after - before) if after > before else 1.0
        places.append(known_before + round(min(share, 1.0) * (known_after - known_before)))
    return places


def _units(text: str) -> list[tuple[int, int]]:
    """Start and end of each line that is not blank, or of a lone one of each sentence."""
    lines = [(found.start(), found.end()) for found in re.finditer(r"[^\r\n]*\S[^\r\n]*", text)]
    if len(lines) != 1:
        return lines
    start, end = lines[0]
    borders = [start, *(start + found.end() for found in SENTENCE_END.finditer(text[start:end])), end]
    return [(one, other) for one, other in pairwise(borders) if text[one:other].strip()]


def _key(word: str) -> str:
    letters = "".join(filter(str.isalnum, word.casefold()))
    return letters or word
