"""Whisper's timestamp rules: where a timestamp may, must and must not come (openai-whisper, decoding.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from transept.authoring import CheckpointView
from transept.plugins.whisper.control_tokens import ControlTokens

SECONDS_PER_TIMESTAMP = 0.02  # one encoder position


class Forbidden(NamedTuple):
    """Token ids that must not come next: those below `before`, and those from `first` to below `stop`."""

    before: int
    first: int
    stop: int


@dataclass(frozen=True)
class TimestampRules:
    """A logits processor that makes a transcript ``<|0.00|> text<|2.40|><|2.40|> text<|5.00|>``.

    end_of_text, no_timestamps, first_timestamp: token ids. max_initial: the transcript's first timestamp is at most so
    many after first_timestamp; None: any. num_prefix_tokens: tokens at the end of the decoder prompt that count as
    transcribed.
    """

    end_of_text: int
    no_timestamps: int
    first_timestamp: int
    max_initial: int | None
    num_prefix_tokens: int = 0

    def __call__(self, logits: Tensor, rows: Sequence[Any]) -> None:
        """Forbid tokens, in place. logits: [rows, vocabulary]; rows: each one's SequenceData."""
        logits[:, self.no_timestamps] = float("-inf")
        forbidden = [self._forbidden(self._transcribed(data), logits.shape[1]) for data in rows]
        if logits.is_cpu:
            forbid_by_row(logits, forbidden)
        else:  # which reads the bounds when its turn has come
            bounds = torch.tensor(forbidden, pin_memory=logits.is_cuda)
            forbid_at_once(logits, bounds.to(logits.device, non_blocking=True))
        # Text is out of the question where all timestamps together are likelier than the most likely text token.
        begin = self.first_timestamp
        likelier = logits[:, begin:].logsumexp(dim=-1) > logits[:, :begin].amax(dim=-1)
        if likelier.is_cpu and not likelier.any():  # a GPU would have to be waited for
            return
        logits[:, :begin].masked_fill_(likelier[:, None], float("-inf"))

    def _transcribed(self, data: Any) -> list[int]:
        prompt = data.prompt_token_ids
        tokens: list[int] = prompt[len(prompt) - self.num_prefix_tokens :] + data.output_token_ids
        return tokens

    def _forbidden(self, transcribed: list[int], vocab_size: int) -> Forbidden:
        """What the rules forbid that follow from the last tokens."""
        begin = self.first_timestamp
        if not transcribed:  # a timestamp opens the transcript, and an early one
            latest = vocab_size if self.max_initial is None else begin + self.max_initial + 1
            return Forbidden(begin, latest, vocab_size)
        last = next((token for token in reversed(transcribed) if token >= begin), None)
        if last is None:
            return Forbidden(0, 0, 0)
        in_pair = transcribed[-1] >= begin
        if not in_pair:
            return Forbidden(0, begin, last + 1)  # a segment ends after its begin
        if len(transcribed) < 2 or transcribed[-2] >= begin:
            return Forbidden(0, begin, vocab_size)  # two timestamps, or the first one: text follows
        # the end of a segment: the next one's begin follows, which is not before it, or the end of text
        return Forbidden(self.end_of_text, begin, last)


def forbid_by_row(logits: Tensor, forbidden: list[Forbidden]) -> None:
    """In place, touching nothing else. logits: [rows, vocabulary]."""
    for row, (before, first, stop) in zip(logits, forbidden, strict=True):
        row[:before] = float("-inf")
        row[first:stop] = float("-inf")


def forbid_at_once(logits: Tensor, bounds: Tensor) -> None:
    """The same in a few kernels for all rows. bounds: [rows, 3], each row's Forbidden."""
    before, first, stop = bounds.T[:, :, None]
    token = torch.arange(logits.shape[1], device=logits.device)
    logits.masked_fill_((token < before) | (token >= first) & (token < stop), float("-inf"))


def timestamp_rules(
    view: CheckpointView, *, max_initial_timestamp: float | None = None, num_prefix_tokens: int = 0
) -> TimestampRules:
    """The rules for one checkpoint. max_initial_timestamp: seconds, None for no bound."""
    tokens = ControlTokens(view.config, view.generation_config)
    bound = max_initial_timestamp
    return TimestampRules(
        end_of_text=tokens.start_of_transcript - 1,
        no_timestamps=tokens.no_timestamps,
        first_timestamp=tokens.first_timestamp,
        max_initial=None if bound is None else round(bound / SECONDS_PER_TIMESTAMP),
        num_prefix_tokens=num_prefix_tokens,
    )
