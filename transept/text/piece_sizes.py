"""PieceSizes: estimate the token counts of a document's pieces, to split it with few tokenizer calls.

The tokens of the whole document show where a piece probably ends. The tokenizer then encodes only that piece, and the
result is the chunk's tokens. Used by DocumentEncoder.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

EDGE = 8  # tokens by which the end of a piece may differ from the whole document's tokens
INFORMED = 4  # probes at expected sizes before the search halves and doubles


class PieceSizes:
    """Tells `pieces` which pieces fit, and which end to try next.

    encode: returns the token ids of a piece, with its prefix and special tokens. limit: longest piece, with those.
    num_tokens: tokens of the document. places: first character of each token, ascending; None if the tokenizer does
        not report them, and then all tokens are assumed to have the same length.
    """

    def __init__(
        self,
        document: str,
        encode: Callable[[str], list[int]],
        limit: int,
        *,
        num_tokens: int,
        places: Sequence[int] | None,
    ) -> None:
        self._document = document
        self._encode = encode
        self._limit = limit
        self._tokens_a_character = num_tokens / len(document)
        self._places = places
        self._stripped: dict[int, int] = {}  # an end -> the start of the blanks before it
        self._excess = float(len(encode("")))  # tokens of a piece in addition to its share of the document's
        self._fitting = "", list[int]()  # the last piece that fitted, and its token ids
        self._size = 0  # of the last piece that was tried
        self._asked: tuple[int, int, int] | None = None  # of the last search: start, end tried, pieces so far

    def fits(self, piece: str) -> bool:
        """True if a piece, stripped of blanks, is within the limit."""
        piece = piece.strip()
        token_ids = self._encode(piece)
        self._size = len(token_ids)
        if self._size <= self._limit:
            self._fitting = piece, token_ids
        return self._size <= self._limit

    def token_ids(self, piece: str) -> list[int]:
        """Return the token ids of a piece, stripped of blanks; cached for the last piece that fitted."""
        piece = piece.strip()
        return self._fitting[1] if piece == self._fitting[0] else self._encode(piece)

    def next(self, start: int, ends: Sequence[int], low: int, high: int) -> int | None:
        """Return the index of the end to try, between `low` and `high`, or None if ends[low] is the largest that fits.

        start: of the piece. ends[low] fits, unless nothing in this search has; ends[high] does not, if it exists.
        """
        num_asked = 0
        if self._asked is not None and self._asked[0] == start:
            _, end, num_asked = self._asked
            self._excess = self._size - (self._until(end) - self._before(start))
        if num_asked >= INFORMED:
            index = min(low + 2 ** (num_asked - INFORMED), (low + high) // 2 if high < len(ends) else high - 1)
            index = max(index, low + 1)
        else:
            room = self._limit - self._excess + self._before(start)
            index = max(low + 1, bisect_right(ends, room, low + 1, high, key=self._until) - 1)
            known = num_asked > 0 and self._places is not None and self._size <= self._limit
            if known and index == low + 1 and self._until(ends[index]) > room + EDGE:
                return None
        self._asked = start, ends[index], num_asked + 1
        return index

    def _until(self, end: int) -> float:
        """Number of the document's tokens up to an end, without tokens that hold only the blanks before it."""
        stripped = self._stripped.get(end)
        if stripped is None:
            stripped = end
            while stripped and self._document[stripped - 1].isspace():
                stripped -= 1
            self._stripped[end] = stripped
        return self._before(stripped)

    def _before(self, position: int) -> float:
        """Number of the document's tokens that begin before a character."""
        if self._places is None:
            return position * self._tokens_a_character
        return bisect_left(self._places, position)
