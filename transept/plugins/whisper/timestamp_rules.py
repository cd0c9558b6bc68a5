"""Whisper's timestamp rules: where a timestamp may, must and must not come (openai-whisper, decoding.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from transept.plugins.whisper.control_tokens import ControlTokens

SECONDS_PER_TIMESTAMP = 0.02  # one encoder position


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
        for row, data in zip(logits, rows, strict=True):
            prompt = data.prompt_token_ids
            self._forbid(row, prompt[len(prompt) - self.num_prefix_tokens :] + data.output_token_ids)
        # Text is out of the question where all timestamps together are likelier than the likeliest text token.
        begin = self.first_timestamp
        likelier = logits[:, begin:].logsumexp(dim=-1) > logits[:, :begin].amax(dim=-1)
        if likelier.is_cpu and not likelier.any():  # a GPU would have to be waited for
            return
        logits[:, :begin].masked_fill_(likelier[:, None], float("-inf"))

    def _forbid(self, row: Tensor, transcribed: list[int]) -> None:
        """Apply the rules that follow from the last tokens. row: [vocabulary]."""
        hidden, begin = float("-inf"), self.first_timestamp
        if not transcribed:  # a timestamp opens the transcript, and an early one
            row[:begin] = hidden
            if self.max_initial is not None:
                row[begin + self.max_initial + 1 :] = hidden
            return
        last = next((token for token in reversed(transcribed) if token >= begin), None)
        if last is None:
            return
        in_pair = transcribed[-1] >= begin
        if not in_pair:
            row[begin : last + 1] = hidden  # a segment ends after its begin
        elif len(transcribed) < 2 or transcribed[-2] >= begin:
            row[begin:] = hidden  # two timestamps, or the first one: text follows
        else:
            row[: self.end_of_text] = hidden  # the end of a segment: the next one's begin follows, or the end of text
            row[begin:last] = hidden  # which is not before it


def timestamp_rules(
    config: Any, *, max_initial_timestamp: float | None = None, num_prefix_tokens: int = 0
) -> TimestampRules:
    """The rules for one checkpoint. max_initial_timestamp: seconds, None for no bound."""
    tokens = ControlTokens(config)
    bound = max_initial_timestamp
    return TimestampRules(
        end_of_text=tokens.start_of_transcript - 1,
        no_timestamps=tokens.no_timestamps,
        first_timestamp=tokens.first_timestamp,
        max_initial=None if bound is None else round(bound / SECONDS_PER_TIMESTAMP),
        num_prefix_tokens=num_prefix_tokens,
    )
