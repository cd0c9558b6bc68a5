"""StepStatistics: counters of an engine's steps. The engine core updates them; metrics and benchmarks read them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class StepStatistics:
    """Sums over all steps; they only grow.

    num_encoder_tokens: rows of encoder outputs computed, excluding those found in the cache.
    num_decoder_tokens: tokens drawn; in a beam search, one for each beam.
    observer: called after each step, in the thread that drives the engine, with the seconds it took. It must not raise.
    """

    num_steps: int = 0
    num_encoder_tokens: int = 0
    num_decoder_tokens: int = 0
    observer: Callable[[float], None] | None = None

    def ended(self, seconds: float, num_decoder_tokens: int) -> None:
        """Count a step that has ended."""
        self.num_steps += 1
        self.num_decoder_tokens += num_decoder_tokens
        if self.observer is not None:
            self.observer(seconds)
