"""The word error rate of texts, for comparisons of one model with itself: case and punctuation do not count."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

NOT_IN_WORDS = re.compile(r"[^\w']+")


def words_of(text: str) -> list[str]:
    """The words of a text, in lower case, without punctuation."""
    return [word for word in NOT_IN_WORDS.sub(" ", text.lower()).split() if word.strip("'")]


def num_errors(expected: Sequence[str], found: Sequence[str]) -> int:
    """Words to insert, leave out or replace in `found` to have `expected`, at least (Levenshtein 1966)."""
    row = list(range(len(found) + 1))
    for index, word in enumerate(expected):
        above, row = row, [index + 1]
        for column, other in enumerate(found):
            row.append(min(above[column] + (word != other), above[column + 1] + 1, row[column] + 1))
    return row[-1]


def word_error_rate(pairs: Iterable[tuple[str, str]]) -> float:
    """Errors in each expected word, over all pairs of (expected, found) text; 0 where no word is expected."""
    errors = total = 0
    for expected, found in pairs:
        words = words_of(expected)
        errors, total = errors + num_errors(words, words_of(found)), total + len(words)
    return errors / total if total else 0.0
