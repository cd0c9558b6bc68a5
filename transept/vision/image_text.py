"""ImageText: what was read in one image, or why it was not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from transept.core.outputs import CompletionOutput
from transept.errors import TranseptError


@dataclass(frozen=True)
class ImageText:
    """What a model reads in one image.

    text: without leading or trailing blanks. score: from 0 to 1, the geometric mean of the probabilities of its tokens:
        how sure the model was, token by token.
    num_tokens: tokens written, the end-of-sequence token included. cumulative_logprob: sum of their log probabilities.
    finish_reason: ``"stop"``; ``"length"`` where the text ran into max_tokens without an end; ``"error"``.
    error: why the image was not read, and then the text is empty and the score 0; else None.
    """

    text: str
    score: float
    num_tokens: int
    cumulative_logprob: float
    finish_reason: str
    error: TranseptError | None = None

    @classmethod
    def of(cls, completion: CompletionOutput) -> ImageText:
        """Of what a finished request came to."""
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
        """Of an image that was not read."""
        return cls("", 0.0, 0, 0.0, "error", error)

    def to_dict(self) -> dict[str, Any]:
        """A plain dict, ready for JSON; the error as a text, ``"MediaError: ..."``."""
        error = None if self.error is None else f"{type(self.error).__name__}: {self.error}"
        return {**vars(self), "error": error}
