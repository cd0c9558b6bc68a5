"""A side of a request as the scheduler sees it: the static encoder sequence, or a decoder sequence that grows.

Moved between states by the scheduler; its blocks are the block manager's business.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from transept.core.request.inputs import EncoderDecoderInputs
from transept.core.scheduling.growing_text import GrowingText


class SampledToken(NamedTuple):
    """A drawn token: what crosses back from the execution side.

    top: log probabilities of the most likely tokens and the drawn one, when the request asks for them.
    """

    token_id: int
    logprob: float
    top: dict[int, float] | None


class SequenceStatus(enum.Enum):
    """Where a decoder sequence stands."""

    WAITING = "waiting"
    RUNNING = "running"
    SWAPPED = "swapped"
    STOPPED = "stop"  # end of sequence, a stop token or a stop string
    LENGTH = "length"  # max_tokens or the model's last position
    ABORTED = "abort"
    FAILED = "error"  # its request raised while it was worked on; see SequenceGroup.error

    def __init__(self, reason: str) -> None:
        self.finished = reason in ("stop", "length", "abort", "error")  # whether the sequence will get no more tokens


class Sequence:
    """Either side of a request: the static encoder side, or a decoder side that grows token by token."""

    def __init__(self, seq_id: int, inputs: EncoderDecoderInputs, from_decoder_prompt: bool = True) -> None:
        side = inputs.decoder if from_decoder_prompt else inputs.encoder
        self.seq_id = seq_id
        self.inputs = inputs
        self.from_decoder_prompt = from_decoder_prompt
        self.prompt = side.prompt
        self.prompt_token_ids = side.token_ids
        self.sample_index = 0  # which of the request's samples this is; set by fork
        self.status = SequenceStatus.WAITING
        self.output_token_ids: list[int] = []
        self.output_text = ""  # set by StopChecker
        self.growing_text = GrowingText()
        self.cumulative_logprob = 0.0
        self.logprobs: list[dict[int, float]] = []  # one dict a token, when the request asks for them
        self.stop_reason: str | int | None = None  # the stop string or token that ended it
        self.score: float | None = None  # what a beam search ranks an ended hypothesis by; set by BeamSearch

    @property
    def num_tokens(self) -> int:
        """Slots that this side needs: the encoder's output length, or decoder prompt plus output."""
        if not self.from_decoder_prompt:
            return self.inputs.encoder.num_tokens
        return len(self.prompt_token_ids) + len(self.output_token_ids)

    @property
    def token_ids(self) -> list[int]:
        """Prompt and output token ids."""
        return self.prompt_token_ids + self.output_token_ids

    @property
    def finished(self) -> bool:
        """Whether the sequence will get no more tokens."""
        return self.status.finished

    def append_token(self, token: SampledToken) -> None:
        """Add one decoded token with its log probability."""
        self.output_token_ids.append(token.token_id)
        self.cumulative_logprob += token.logprob
        if token.top is not None:
            self.logprobs.append(token.top)

    def fork(self, seq_id: int, sample_index: int) -> Sequence:
        """A copy under a new id; its blocks are shared through BlockSpaceManager.fork."""
        child = Sequence(seq_id, self.inputs)
        child.sample_index = sample_index
        child.status = self.status
        child.output_token_ids = list(self.output_token_ids)
        child.output_text = self.output_text
        child.growing_text = self.growing_text.copy()
        child.cumulative_logprob = self.cumulative_logprob
        child.logprobs = list(self.logprobs)
        return child
