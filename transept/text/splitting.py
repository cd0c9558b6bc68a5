"""Splitting a long document into pieces that fit a model's encoder.

A rule over punctuation, without a dictionary of abbreviations or a language to be told: a piece that ends after "Dr."
costs little, since most pieces hold dozens of sentences and only their last one can be cut there.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence

from transept.errors import PromptError

_SENTENCE_END = re.compile(
    r"""
    [.!?…؟۔।॥]+ ["'”’»)\]]* \s+     # closing marks and quotes, then a blank
    | [。！？｡]+ ["”’」』）]* \s*       # scripts that put no blank between sentences
    | \n \s* \n \s*                  # a paragraph ends, whatever it ends with
    """,  # noqa: RUF001, full stops of other scripts
    re.VERBOSE,
)
_WORD = re.compile(r"\s*\S+\s*")


def split(document: str, fits: Callable[[str], bool]) -> list[str]:
    """Consecutive pieces of the document, each as many whole sentences as fit; joined they are the document again.

    A sentence that does not fit is split between words, a word that does not fit between characters.
    fits: whether a piece does; asked for about log2(sentences) pieces each time. Should hold for every part of a piece
    that fits; where it does not, pieces fit all the same, but may be shorter than need be.
    Raises PromptError when not even one character fits.
    """
    sentence_ends = _sentence_ends(document)
    pieces = []
    start = 0
    while start < len(document):
        del sentence_ends[: bisect_right(sentence_ends, start)]
        end = _farthest(document, start, sentence_ends, fits)
        if end is None:
            word_ends = _word_ends(document, start, sentence_ends[0])
            end = _farthest(document, start, word_ends, fits)
        if end is None:
            end = _farthest(document, start, range(start + 1, word_ends[0] + 1), fits)
        if end is None:
            raise PromptError(f"not even {document[start]!r} of the document fits: allow for more tokens")
        pieces.append(document[start:end])
        start = end
    return pieces


def _sentence_ends(document: str) -> list[int]:
    """Where sentences end, the blanks after them included; the document's end is the last."""
    ends = [
        match.end()
        for match in _SENTENCE_END.finditer(document)
        if not document[match.end() : match.end() + 1].islower() or match[0].count("\n") > 1
    ]
    return ends if ends and ends[-1] == len(document) else [*ends, len(document)]


def _word_ends(document: str, start: int, end: int) -> list[int]:
    return [match.end() for match in _WORD.finditer(document, start, end)] or [end]


def _farthest(document: str, start: int, ends: Sequence[int], fits: Callable[[str], bool]) -> int | None:
    """The last of the ends up to which the document fits, from start on; None when it fits up to none of them."""
    found = 0  # ends[:found] are known to fit
    stride = 1
    while stride:
        if found + stride <= len(ends) and fits(document[start : ends[found + stride - 1]]):
            found += stride
            stride *= 2
        else:
            stride //= 2
    return ends[found - 1] if found else None
