"""DocumentEncoder: a document to what the engine's encoder is given for one task, whole, truncated or in chunks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transept.core.request.limits import DEFAULT_LIMITS, Limits
from transept.errors import CheckpointError, ParameterError, PromptError
from transept.registry.spec import TextTask
from transept.text.splitting import split


@dataclass(frozen=True)
class EncodedDocument:
    """prompts: encoder token ids, one list a chunk. truncated: whether the document's end was cut off."""

    prompts: list[list[int]]
    truncated: bool = False


class DocumentEncoder:
    """Encodes documents for one task.

    tokenizer: the checkpoint's. task: what the model's family made of the task; its prefix and its special tokens frame
    every document and every chunk. limit: encoder tokens at most.
    truncate: cut the end off a longer document; chunk: split it. Neither: it is an error.
    limits: on the characters of a document, however it is cut.
    Raises ParameterError when the limit leaves no room for a document.
    """

    def __init__(
        self,
        tokenizer: Any,
        task: TextTask,
        limit: int,
        *,
        truncate: bool = False,
        chunk: bool = False,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        if truncate and chunk:
            raise ParameterError("truncate and chunk are two answers to one question: choose one")
        self.tokenizer = tokenizer
        self.prefix = task.prefix
        before, after = task.special_tokens or _own_special_tokens(tokenizer)
        self.before, self.after = list(before), list(after)
        self.limit = limit
        self.truncate = truncate
        self.chunk = chunk
        self.limits = limits
        framing = len(self._encode(""))
        if limit <= framing:
            raise ParameterError(
                f"{limit} encoder tokens leave no room for a document: its prefix and special tokens take {framing}"
            )

    def __call__(self, document: str) -> EncodedDocument:
        """Token ids of the document or of its chunks, which are stripped of blanks.

        Raises PromptError for an empty document, for one beyond the limits, and for one that is too long when it may
        not be cut or split.
        """
        if not isinstance(document, str):
            raise PromptError(f"a document is a string, not {type(document).__name__}")
        self.limits.check_text(document, "the document")
        if not document.strip():
            raise PromptError("the document is empty")
        tokens = self._encode(document)
        if len(tokens) <= self.limit:
            return EncodedDocument([tokens])
        if self.chunk:
            pieces = split(document, lambda piece: len(self._encode(piece.strip())) <= self.limit)
            return EncodedDocument([self._encode(piece.strip()) for piece in pieces if piece.strip()])
        if self.truncate:
            return EncodedDocument([tokens[: self.limit - len(self.after)] + self.after], truncated=True)
        raise PromptError(
            f"the document has {len(tokens)} tokens; this model reads {self.limit}. Cut its end off with "
            "truncate=True, or split it at sentences with chunk=True"
        )

    def _encode(self, text: str) -> list[int]:
        content = self.tokenizer(self.prefix + text, add_special_tokens=False, verbose=False).input_ids
        return [*self.before, *content, *self.after]


def _own_special_tokens(tokenizer: Any) -> tuple[list[int], list[int]]:
    """The tokens that the tokenizer puts before and after a text."""
    content = list(tokenizer("a", add_special_tokens=False).input_ids)
    framed = list(tokenizer("a").input_ids)
    for start in range(len(framed) - len(content) + 1):
        if framed[start : start + len(content)] == content:
            return framed[:start], framed[start + len(content) :]
    raise CheckpointError(f"{type(tokenizer).__name__} does not put its special tokens around a text")
