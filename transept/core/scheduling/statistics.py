"""StepStatistics: counters of an engine's steps. The engine core updates them; metrics and benchmarks read them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class StepStatistics:
    """Sums over all steps; they only grow.

    num_encoder_tokens: rows of encoder outputs computed, excluding those found in the cache.
    num_decoder_tokens: tokens drawn; in a beam search, one for each beam.
    num_drafts, num_draft_tokens: drafts computed, and their tokens.
    num_accepted_tokens: draft tokens that became tokens of an output. A step with a draft also yields one more token.
    num_embeddings: encoder outputs returned to requests that only encode.
    observer: called after each step, in the thread that drives the engine, with the seconds it took. It must not raise.
    """

    num_steps: int = 0
    num_encoder_tokens: int = 0
    num_decoder_tokens: int = 0
    num_drafts: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    num_embeddings: int = 0
    observer: Callable[[float], None] | None = None

    def drafted(self, num_tokens: int, num_accepted: int) -> None:
        """Count a draft of `num_tokens` tokens, of which `num_accepted` were accepted."""
        self.num_drafts += 1
        self.num_draft_tokens += num_tokens
        self.num_accepted_tokens += num_accepted
        self.num_decoder_tokens += num_accepted

    def ended(self, seconds: float, num_decoder_tokens: int, num_embeddings: int = 0) -> None:
        """Count a step that has ended."""
        self.num_steps += 1
        self.num_decoder_tokens += num_decoder_tokens
        self.num_embeddings += num_embeddings
        if self.observer is not None:
            self.observer(seconds)
