"""GrowingText: the text of a sequence that grows, without decoding all of its tokens for each new one.

Kept by each sequence for StopChecker, and by a server for each transcription that is streamed.
"""

from __future__ import annotations

from collections.abc import Callable

INCOMPLETE = "\N{REPLACEMENT CHARACTER}"  # what a tokenizer makes of the first bytes of a character
OVERLAP = 8  # tokens before the new ones that are decoded with them
LONGEST = 24  # tokens decoded at a time


class GrowingText:
    """Decodes the last tokens only, where those before them end with a whole character and so stay as they are.

    What a tokenizer makes of a token depends on its neighbours (a blank before the first word goes, bytes join to
    characters, a blank before punctuation goes), so the new tokens are decoded with some before them, and what those
    give by themselves is taken off. Where that is no beginning of the whole, all tokens are decoded.
    """

    def __init__(self) -> None:
        self._begin = 0  # of the tokens that are decoded
        self._text = ""  # of all tokens up to where `_known` ends
        self._known = ""  # what those from `_begin` on give by themselves

    def of(self, token_ids: list[int], decode: Callable[[list[int]], str]) -> str:
        """What ``decode(token_ids)`` returns. token_ids: those of the last call and what came after them."""
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
        """For a sequence that begins with the same tokens."""
        copied = GrowingText()
        copied._begin, copied._text, copied._known = self._begin, self._text, self._known
        return copied
