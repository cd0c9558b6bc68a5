"""Whisper's timestamp rules: places where a timestamp may, must and must not occur (openai-whisper, decoding.py)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from transept.authoring import CheckpointView
from transept.plugins.whisper.control_tokens import tokens_of

SECONDS_PER_TIMESTAMP = 0.02  # one encoder position


class Forbidden(NamedTuple):
    """Forbidden ids of the next token: below `before`, from `first` to below `stop`, and from `after` on."""

    before: int
    first: int
    stop: int
    after: int = sys.maxsize


@dataclass(frozen=True)
class TimestampRules:
    """A logits processor that makes a transcript ``<|0.00|> text<|2.40|><|2.40|> text<|5.00|>``.

    end_of_text, no_timestamps, first_timestamp, last_timestamp: token ids; those beyond the last one are text.
    max_initial: the transcript's first timestamp is at most so many ids after first_timestamp; None: any.
    num_prefix_tokens: tokens at the end of the decoder prompt that count as transcribed.
    """

    end_of_text: int
    no_timestamps: int
    first_timestamp: int
    last_timestamp: int
    max_initial: int | None
    num_prefix_tokens: int = 0

    def __call__(self, logits: Tensor, rows: Sequence[Any]) -> None:
        """Forbid tokens, in place. logits: [rows, vocabulary]; rows: each one's SequenceData."""
        logits[:, self.no_timestamps] = float("-inf")
        forbidden = [self._forbidden(self._transcribed(data)) for data in rows]
        if logits.is_cpu:
            forbid_by_row(logits, forbidden)
        else:  # an asynchronous copy: no code here waits for it
            bounds = torch.tensor(forbidden, pin_memory=logits.is_cuda)
            forbid_at_once(logits, bounds.to(logits.device, non_blocking=True))
        # A timestamp is required if all timestamps together are more probable than the most probable text token.
        begin, end = self.first_timestamp, self.last_timestamp + 1
        text = logits[:, :begin].amax(dim=-1)
        if end < logits.shape[1]:
            text = torch.maximum(text, logits[:, end:].amax(dim=-1))
        likelier = logits[:, begin:end].logsumexp(dim=-1) > text
        if likelier.is_cpu and not likelier.any():  # on a GPU, this would wait
            return
        logits[:, :begin].masked_fill_(likelier[:, None], float("-inf"))
        logits[:, end:].masked_fill_(likelier[:, None], float("-inf"))

    def _transcribed(self, data: Any) -> list[int]:
        prompt = data.prompt_token_ids
        return prompt[len(prompt) - self.num_prefix_tokens :] + data.output_token_ids

    def _forbidden(self, transcribed: list[int]) -> Forbidden:
        """Return the tokens that the rules forbid next."""
        begin, end = self.first_timestamp, self.last_timestamp + 1
        if not transcribed:  # an early timestamp begins the transcript
            return Forbidden(begin, 0, 0, end if self.max_initial is None else min(begin + self.max_initial + 1, end))
        last = next((token for token in reversed(transcribed) if begin <= token < end), None)
        if last is None:
            return Forbidden(0, 0, 0)
        if not begin <= transcribed[-1] < end:
            return Forbidden(0, begin, last + 1)  # a segment ends after its beginning
        if len(transcribed) < 2 or begin <= transcribed[-2] < end:
            return Forbidden(0, begin, end)  # two timestamps, or the first one: text follows
        # after the end of a segment: the next segment's beginning, which is not earlier, or the end of text
        return Forbidden(self.end_of_text, begin, last, end)


def forbid_by_row(logits: Tensor, forbidden: list[Forbidden]) -> None:
    """Forbid tokens row by row, in place. logits: [rows, vocabulary]."""
    for row, (before, first, stop, after) in zip(logits, forbidden, strict=True):
        row[:before] = float("-inf")
        row[first:stop] = float("-inf")
        row[after:] = float("-inf")


def forbid_at_once(logits: Tensor, bounds: Tensor) -> None:
    """Forbid all rows' tokens in a few kernels. bounds: [rows, 4], each row's Forbidden."""
    before, first, stop, after = bounds.T[:, :, None]
    token = torch.arange(logits.shape[1], device=logits.device)
    logits.masked_fill_((token < before) | (token >= first) & (token < stop) | (token >= after), float("-inf"))


def timestamp_rules(
    view: CheckpointView, *, max_initial_timestamp: float | None = None, num_prefix_tokens: int = 0
) -> TimestampRules:
    """Return the rules for one checkpoint. max_initial_timestamp: seconds, None for no bound."""
    tokens = tokens_of(view)
    bound = max_initial_timestamp
    return TimestampRules(
        end_of_text=tokens.start_of_transcript - 1,
        no_timestamps=tokens.no_timestamps,
        first_timestamp=tokens.first_timestamp,
        last_timestamp=tokens.last_timestamp,
        max_initial=None if bound is None else round(bound / SECONDS_PER_TIMESTAMP),
        num_prefix_tokens=num_prefix_tokens,
    )
