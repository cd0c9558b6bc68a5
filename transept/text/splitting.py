"""Splitting a long document into pieces that fit a model's encoder.

A rule over punctuation, without a language or a dictionary of abbreviations: a piece that ends after "Dr." costs
little, because most pieces hold dozens of sentences and only their last one can be cut there.

The time is linear in the document's length: a run of marks is examined only from its start, and if a sentence does not
fit, only its next words are tried.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from itertools import chain
from typing import Any, TypeAlias

from transept.errors import PromptError

_SENTENCE_END = re.compile(
    r"""
    (?<![.!?…؟۔।॥]) [.!?…؟۔।॥]++ ["'”’»)\]]*+ \s++  # closing marks and quotes, then a blank
    | [。！？｡]++ ["”’」』）]*+ \s*+  # scripts that put no blank between sentences
    | \n \s* \n \s*+              # end of a paragraph, after any character
    """,  # noqa: RUF001, full stops of other scripts
    re.VERBOSE,
)
_WORD = re.compile(r"\S++\s*+")


Probe: TypeAlias = Callable[[int, Sequence[int], int, int], int | None]  # start, ends, low, high -> index of an end


def pieces(document: str, fits: Callable[[str], bool], probe: Probe | None = None) -> Iterator[str]:
    """Yield consecutive pieces of the document, each as many whole sentences as fit.

    Joined they are the document again. A sentence that does not fit is split between words, a word that does not fit
    between characters.

    fits: returns True if a piece fits. Every part of a piece that fits should fit; otherwise all pieces still fit, but
        may be shorter than necessary. The yielded piece is the last one that fitted.
    probe: returns the next end of sentences or words to try: ends[low] is known to fit, unless low is before the first,
        and ends[high] not to fit, unless high is after the last. None: ends[low] is the largest. Without a probe, each
        search tries about log2(sentences) pieces.
    Raises PromptError if one character does not fit.
    """
    if not document:
        return
    levels = ((_sentence_ends, probe), (_word_ends, probe), (_character_ends, None))
    start = 0
    for end in chain(_cuts(document, 0, len(document), levels, fits), (len(document),)):
        yield document[start:end]
        start = end


def _cuts(
    document: str,
    start: int,
    stop: int,
    levels: Sequence[tuple[Callable[[str, int, int], Sequence[int]], Probe | None]],
    fits: Callable[[str], bool],
) -> Generator[int, Any, int]:
    """Yield the cuts of document[start:stop] until the rest fits, and return the start of the rest.

    levels: functions that return the ends of parts, from sentences to characters, each with its probe. The next level
    splits a part that does not fit. The last end is `stop`.
    """
    (find_ends, probe), *finer = levels
    ends = find_ends(document, start, stop)
    while True:
        first = bisect_right(ends, start)
        end = _farthest(document, start, ends, first, fits, probe)
        if end == stop:
            return start
        if end is not None:
            yield end
            start = end
        elif finer:
            start = yield from _cuts(document, start, ends[first], finer, fits)
        else:
            raise PromptError(f"{document[start]!r} alone does not fit: allow for more encoder tokens")


def _sentence_ends(document: str, start: int, stop: int) -> list[int]:
    """Return the ends of sentences, including the blanks after them."""
    ends = [
        match.end()
        for match in _SENTENCE_END.finditer(document, start, stop)
        if not document[match.end() : match.end() + 1].islower() or match[0].count("\n") > 1
    ]
    return ends if ends and ends[-1] == stop else [*ends, stop]


def _word_ends(document: str, start: int, stop: int) -> list[int]:
    return [match.end() for match in _WORD.finditer(document, start, stop)] or [stop]


def _character_ends(document: str, start: int, stop: int) -> range:
    return range(start + 1, stop + 1)


def _farthest(
    document: str, start: int, ends: Sequence[int], first: int, fits: Callable[[str], bool], probe: Probe | None
) -> int | None:
    """Return the last of ends[first:] up to which the document fits from start on, or None."""
    if probe is not None:
        low, high = first - 1, len(ends)
        while high - low > 1 and (index := probe(start, ends, low, high)) is not None:
            if fits(document[start : ends[index]]):
                low = index
            else:
                high = index
        return ends[low] if low >= first else None
    found = first  # ends[first:found] are known to fit
    stride = 1
    while stride:
        if found + stride <= len(ends) and fits(document[start : ends[found + stride - 1]]):
            found += stride
            stride *= 2
        else:
            stride //= 2
    return ends[found - 1] if found > first else None
