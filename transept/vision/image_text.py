"""ImageText: the text of one image, or the error of reading it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from transept.core.outputs import CompletionOutput
from transept.errors import TranseptError


@dataclass(frozen=True)
class ImageText:
    """The text that a model reads in one image.

    text: without leading or trailing blanks. score: confidence from 0 to 1: geometric mean of its tokens'
    probabilities.
    num_tokens: tokens written, including the end-of-sequence token. cumulative_logprob: sum of their log probabilities.
    finish_reason: ``"stop"``; ``"length"`` if the text reached max_tokens without an end; ``"error"``.
    error: the error of an image that failed; its text is then empty, and its score 0. Else None.
    """

    text: str
    score: float
    num_tokens: int
    cumulative_logprob: float
    finish_reason: str
    error: TranseptError | None = None

    @classmethod
    def of(cls, completion: CompletionOutput) -> ImageText:
        """Make the result of a finished request."""
        num_tokens = len(completion.token_ids)
        logprob = completion.cumulative_logprob
        return cls(
            text=completion.text.strip(),
            score=math.exp(logprob / num_tokens) if num_tokens else 0.0,
            num_tokens=num_tokens,
            cumulative_logprob=logprob,
            finish_reason=completion.finish_reason or "stop",
        )

    @classmethod
    def failed(cls, error: TranseptError) -> ImageText:
        """Return the result of an image that failed."""
        return cls("", 0.0, 0, 0.0, "error", error)

    def to_dict(self) -> dict[str, Any]:
        """Return a plain dict, ready for JSON, with the error as a string, ``"MediaError: ..."``."""
        error = None if self.error is None else f"{type(self.error).__name__}: {self.error}"
        return {**vars(self), "error": error}
