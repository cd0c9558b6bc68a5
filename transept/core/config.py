"""Frozen settings of the engine's parts, checked when they are made."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from transept.errors import ParameterError


@dataclass(frozen=True)
class SchedulerConfig:
    """What one step may hold at most.

    max_num_seqs: decoder sequences that run at a time, all samples of a request counted.
    max_decoder_tokens: decoder tokens computed in one step: all of a newcomer's, one of each running sequence's.
    max_encoder_tokens: encoder tokens computed in one step, which are the newcomers'.

    Raises ParameterError for a budget under 1, or too few decoder tokens for every sequence to take one a step.
    """

    max_num_seqs: int
    max_decoder_tokens: int
    max_encoder_tokens: int

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ParameterError(f"{field.name} must be an integer of at least 1, not {value!r}")
        if self.max_decoder_tokens < self.max_num_seqs:
            raise ParameterError(
                f"max_decoder_tokens={self.max_decoder_tokens} is under max_num_seqs={self.max_num_seqs}: "
                f"a step in which every sequence decodes needs one token each. Raise the first or lower the second."
            )
