"""The word error rate of texts, without case and punctuation, to compare settings of one model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

NOT_IN_WORDS = re.compile(r"[^\w']+")


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case, without punctuation."""
    return [word for word in NOT_IN_WORDS.sub(" ", text.lower()).split() if word.strip("'")]


def num_errors(expected: Sequence[str], found: Sequence[str]) -> int:
    """Return the edit distance of two lists of words (Levenshtein 1966)."""
    row = list(range(len(found) + 1))
    for index, word in enumerate(expected):
        above, row = row, [index + 1]
        for column, other in enumerate(found):
            row.append(min(above[column] + (word != other), above[column + 1] + 1, row[column] + 1))
    return row[-1]


def word_error_rate(pairs: Iterable[tuple[str, str]]) -> float:
    """Return the errors per expected word over all pairs of (expected, found) text; 0 without expected words."""
    errors = total = 0
    for expected, found in pairs:
        words = words_of(expected)
        errors, total = errors + num_errors(words, words_of(found)), total + len(words)
    return errors / total if total else 0.0
