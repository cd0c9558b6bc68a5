"""GrowingText: incremental detokenization of a growing sequence.

Each sequence has one for StopChecker, and the server has one for each streamed transcription.
"""

from __future__ import annotations

from collections.abc import Callable

INCOMPLETE = "\N{REPLACEMENT CHARACTER}"  # a tokenizer decodes the first bytes of a character to this
OVERLAP = 8  # tokens before the new ones that are decoded with them
LONGEST = 24  # tokens decoded at a time


class GrowingText:
    """Decodes only the last tokens, once the text before them ends with a complete character.

    The text of a token depends on its neighbours: bytes join to characters, and a blank before the first word or before
    punctuation is dropped. So new tokens are decoded together with some earlier ones, whose own text is then removed
    from the start of the result. If the result does not start with that text, all tokens are decoded.
    """

    def __init__(self) -> None:
        self._begin = 0  # first token that is decoded
        self._text = ""  # of all tokens up to the end of `_known`
        self._known = ""  # of the tokens from `_begin` on, decoded alone

    def of(self, token_ids: list[int], decode: Callable[[list[int]], str]) -> str:
        """Return ``decode(token_ids)``. token_ids: the last call's, followed by new ones."""
        if not self._begin:
            text = decode(token_ids)
        else:
            last = decode(token_ids[self._begin :])
            text = self._text + last[len(self._known) :] if last.startswith(self._known) else decode(token_ids)
        if len(token_ids) - self._begin >= LONGEST:
            begin = len(token_ids) - OVERLAP
            known = decode(token_ids[begin:])
            if known and text.endswith(known) and not known.endswith(INCOMPLETE):
                self._begin, self._text, self._known = begin, text, known
        return text

    def copy(self) -> GrowingText:
        """Return a copy, for a sequence that begins with the same tokens."""
        copied = GrowingText()
        copied._begin, copied._text, copied._known = self._begin, self._text, self._known
        return copied
