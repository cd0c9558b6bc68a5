"""GeneratedText: the result of a text task; TextUpdate: an update of its stream."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from transept.errors import TranseptError


@dataclass(frozen=True)
class AlternativeText:
    """A further text for a document: a sample, or a hypothesis of a beam search. Fields as in GeneratedText."""

    text: str
    num_tokens: int
    cumulative_logprob: float
    finish_reason: str


@dataclass(frozen=True)
class GeneratedText:
    """A model's text for one document.

    text: without leading or trailing blanks; the texts of chunks are joined with a space.
    num_source_tokens: tokens that the encoder read, prefix and special tokens included. num_tokens: tokens written.
    num_chunks: pieces that the document was split into. truncated: whether its end was cut off.
    cumulative_logprob: sum of the written tokens' log probabilities.
    finish_reason: ``"length"`` if the text or a chunk's text reached max_tokens without an end; ``"error"``; else
    ``"stop"``.
    error: the error of a document that failed; its text is then empty, and all numbers are 0. Else None.
    alternatives: further texts, if n or num_return_sequences asks for them: other samples, or the next best hypotheses.
        Of a document in chunks, each joins the chunks' texts of the same rank.
    """

    text: str
    num_source_tokens: int
    num_tokens: int
    num_chunks: int
    truncated: bool
    cumulative_logprob: float
    finish_reason: str
    error: TranseptError | None = None
    alternatives: list[AlternativeText] = field(default_factory=list)

    @property
    def num_all_tokens(self) -> int:
        """Number of tokens of all texts."""
        return self.num_tokens + sum(each.num_tokens for each in self.alternatives)

    @classmethod
    def failed(cls, error: TranseptError) -> GeneratedText:
        """Return the result of a document that failed."""
        return cls("", 0, 0, 0, False, 0.0, "error", error)

    def to_dict(self) -> dict[str, Any]:
        """Return a plain dict, ready for JSON, with the error as a string, ``"PromptError: ..."``."""
        error = None if self.error is None else f"{type(self.error).__name__}: {self.error}"
        return {**vars(self), "error": error, "alternatives": [{**vars(each)} for each in self.alternatives]}


@dataclass(frozen=True)
class TextUpdate:
    """An update on one document of a stream.

    index: of the document, from 0. text: the new text; the texts of all updates make up the result's text.
    result: in a document's last update, its GeneratedText, or the error that stopped it.
    """

    index: int
    text: str
    result: GeneratedText | TranseptError | None = None
