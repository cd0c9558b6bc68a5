"""One side of a request as the scheduler sees it: the static encoder sequence, or a growing decoder sequence.

The scheduler sets its status; the block manager keeps its blocks.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

from transept.core.request.inputs import EncoderDecoderInputs
from transept.core.scheduling.growing_text import GrowingText

if TYPE_CHECKING:
    from transept.core.scheduling.drafter import Drafter


class SampledToken(NamedTuple):
    """A drawn token, as the execution side returns it.

    top: log probabilities of the most likely tokens and the drawn one, if the request asks for them.
    boost: what keywords added to the log probability; negative if a match of a keyword ended incomplete. A
    KeywordSearch sets it.
    noise: random number added to the log probability for a draw of beams; else 0.
    """

    token_id: int
    logprob: float
    top: dict[int, float] | None
    boost: float = 0.0
    noise: float = 0.0


class SequenceStatus(enum.Enum):
    """State of a decoder sequence. The values of ended states are finish reasons."""

    WAITING = "waiting"
    RUNNING = "running"
    SWAPPED = "swapped"
    STOPPED = "stop"  # end of sequence, a stop token or a stop string
    LENGTH = "length"  # max_tokens or the model's last position
    ABORTED = "abort"
    FAILED = "error"  # an exception while its request was processed; see SequenceGroup.error

    def __init__(self, reason: str) -> None:
        self.finished = reason in ("stop", "length", "abort", "error")  # True if the sequence gets no more tokens


class Sequence:
    """One side of a request: the static encoder side, or a decoder side that grows token by token."""

    def __init__(self, seq_id: int, inputs: EncoderDecoderInputs, from_decoder_prompt: bool = True) -> None:
        side = inputs.decoder if from_decoder_prompt else inputs.encoder
        self.seq_id = seq_id
        self.inputs = inputs
        self.from_decoder_prompt = from_decoder_prompt
        self.prompt = side.prompt
        self.prompt_token_ids = side.token_ids
        self.sample_index = 0  # among the request's samples; set by fork
        self.status = SequenceStatus.WAITING
        self.output_token_ids: list[int] = []
        self.output_text = ""  # set by StopChecker
        self.growing_text = GrowingText()
        self.cumulative_logprob = 0.0
        self.cumulative_boost = 0.0  # of keywords
        self.logprobs: list[dict[int, float]] = []  # one dict a token, if the request asks for them
        self.stop_reason: str | int | None = None  # the stop string or token that ended it
        self.drafter: Drafter | None = None  # set by Drafting, for a request with drafts
        self.draft_token_ids: list[int] = []  # of the step in flight; set by Drafting
        self.score: float | None = None  # of an ended hypothesis of a beam search; set by BeamSearch

    @property
    def num_tokens(self) -> int:
        """Number of cache slots of this side: the length of the encoder's output, or of decoder prompt and output."""
        if not self.from_decoder_prompt:
            return self.inputs.encoder.num_tokens
        return len(self.prompt_token_ids) + len(self.output_token_ids)

    @property
    def finished(self) -> bool:
        """True if the sequence gets no more tokens."""
        return self.status.finished

    def append_token(self, token: SampledToken) -> None:
        """Append a decoded token with its log probability."""
        self.output_token_ids.append(token.token_id)
        self.cumulative_logprob += token.logprob
        self.cumulative_boost += token.boost
        if token.top is not None:
            self.logprobs.append(token.top)

    def fork(self, seq_id: int, sample_index: int) -> Sequence:
        """Return a copy with a new id. BlockSpaceManager.fork lets it share the blocks."""
        child = Sequence(seq_id, self.inputs)
        child.sample_index, child.status = sample_index, self.status
        child.output_token_ids, child.logprobs = [*self.output_token_ids], [*self.logprobs]
        child.output_text, child.growing_text = self.output_text, self.growing_text.copy()
        child.cumulative_logprob, child.cumulative_boost = self.cumulative_logprob, self.cumulative_boost
        return child
