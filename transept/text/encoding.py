"""DocumentEncoder: convert a document to encoder tokens for one task, whole, truncated or in chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from transept.core.request.limits import DEFAULT_LIMITS, Limits
from transept.errors import CheckpointError, ParameterError, PromptError
from transept.registry.spec import TextTask
from transept.text.piece_sizes import PieceSizes
from transept.text.splitting import pieces


@dataclass(frozen=True)
class EncodedDocument:
    """An encoded document. prompts: encoder token ids of each chunk. truncated: True if its end was cut off."""

    prompts: list[list[int]]
    truncated: bool = False


class DocumentEncoder:
    """Encodes documents for one task.

    tokenizer: the checkpoint's. task: the family's declaration; its prefix and its special tokens frame every document
    and every chunk. limit: largest number of encoder tokens.
    truncate: True to cut the end off a longer document. chunk: True to split it. Without both, it is an error.
    can_chunk: False if the caller takes no chunks, for errors.
    limits: on the characters of a document, before it is cut.
    Raises ParameterError if the limit leaves no room for a document.
    """

    def __init__(
        self,
        tokenizer: Any,
        task: TextTask,
        limit: int,
        *,
        truncate: bool = False,
        chunk: bool = False,
        can_chunk: bool = True,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.tokenizer = tokenizer
        self.prefix = task.prefix
        before, after = task.special_tokens or own_special_tokens(tokenizer)
        self.before, self.after = list(before), list(after)
        self.limit = limit
        self.truncate = truncate
        self.chunk = chunk
        self.can_chunk = can_chunk
        self.limits = limits
        framing = len(self._encode(""))
        if limit <= framing:
            raise ParameterError(
                f"{limit} encoder tokens leave no room for a document: its prefix and special tokens take {framing}",
                param="max_source_tokens",
                value=limit,
            )

    def __call__(self, document: str) -> EncodedDocument:
        """Return the token ids of a document or of its chunks, which are stripped of blanks.

        Raises PromptError for a document that is empty, beyond the limits, or too long without truncate and chunk.
        """
        if not isinstance(document, str):
            raise PromptError(f"a document is a string, not {type(document).__name__}")
        self.limits.check_text(document, "the document")
        if not document.strip():
            raise PromptError("the document is empty")
        encoded = self._content(document)
        tokens = self._framed(encoded)
        if len(tokens) <= self.limit:
            return EncodedDocument([tokens])
        if self.chunk:
            sizes = PieceSizes(
                document,
                self._encode,
                self.limit,
                num_tokens=len(encoded.input_ids),
                places=_places(encoded, len(self.prefix)),
            )
            chunks = (piece for piece in pieces(document, sizes.fits, sizes.next) if piece.strip())
            return EncodedDocument([sizes.token_ids(chunk) for chunk in chunks])
        if self.truncate:
            return EncodedDocument([tokens[: self.limit - len(self.after)] + self.after], truncated=True)
        raise self._too_long(len(tokens), ", or split it at sentences with {chunk=True}" if self.can_chunk else "")

    def of_tokens(self, token_ids: Sequence[int]) -> EncodedDocument:
        """Return a document that is given as the encoder's tokens, with its special tokens. Never splits it.

        Raises PromptError for a document that is empty, or too long without truncate.
        """
        tokens = list(token_ids)
        if not tokens:
            raise PromptError("the document is empty")
        if len(tokens) <= self.limit:
            return EncodedDocument([tokens])
        if not self.truncate:
            raise self._too_long(len(tokens), "")
        end = self.after if tokens[-len(self.after) :] == self.after else []
        return EncodedDocument([tokens[: self.limit - len(end)] + end], truncated=True)

    def _too_long(self, num_tokens: int, otherwise: str) -> PromptError:
        return PromptError(
            f"the document has {num_tokens} tokens; this model reads {self.limit}. Cut its end off with "
            "{truncate=True}" + otherwise,
            others=("truncate", "chunk") if otherwise else ("truncate",),
        )

    def _encode(self, text: str) -> list[int]:
        return self._framed(self._content(text))

    def _content(self, text: str) -> Any:
        """Return the tokenizer's result for the prefix and the text."""
        return self.tokenizer(self.prefix + text, add_special_tokens=False, verbose=False)

    def _framed(self, encoded: Any) -> list[int]:
        return [*self.before, *encoded.input_ids, *self.after]


def _places(encoded: Any, prefix_length: int) -> list[int] | None:
    """Return the position of each token's first character, or None if the tokenizer does not report it."""
    encodings = getattr(encoded, "encodings", None)
    if not encodings:
        return None
    places = [start - prefix_length for start, _ in encodings[0].offsets]
    return places if all(one <= other for one, other in pairwise(places)) else None


def own_special_tokens(tokenizer: Any) -> tuple[list[int], list[int]]:
    """Return the tokens that the tokenizer puts before and after a text."""
    content = list(tokenizer("a", add_special_tokens=False).input_ids)
    framed = list(tokenizer("a").input_ids)
    for start in range(len(framed) - len(content) + 1):
        if framed[start : start + len(content)] == content:
            return framed[:start], framed[start + len(content) :]
    raise CheckpointError(f"{type(tokenizer).__name__} does not put its special tokens around a text")
