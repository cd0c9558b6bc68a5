"""BeamSearch: decides which beams of a request continue, which are hypotheses, and when the search ends.

Each request with a beam search has one. After every step the engine core calls it, and then forks and frees the beams'
blocks. The rules are transformers'. No torch here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import itemgetter

from transept.core.request.guided import DEAD_END
from transept.core.request.sampling_params import SamplingParams
from transept.core.scheduling.sequence import SampledToken, Sequence, SequenceStatus
from transept.errors import RequestFailedError

End = tuple[SequenceStatus, str | int | None]  # status and stop_reason of a sequence that ends
Ends = Callable[[Sequence, int], End | None]  # (beam, next token id) -> how the token ends the beam, or None

Candidate = tuple[float, Sequence, SampledToken]  # total, parent, token of a possible Continuation


@dataclass(slots=True)
class Continuation:
    """A beam with one more token. total: sum of its log probabilities and boosts, by which beams are ranked."""

    parent: Sequence
    token: SampledToken
    total: float


class BeamSearch:
    """The state of one request's search.

    params: the request's, completed. num_forced: tokens of the decoder prompt that count as new in a hypothesis'
        length (see `num_forced_tokens`).
    hypotheses: copies of ended beams, best first, at most num_beams times patience. They hold no blocks.
    """

    def __init__(self, params: SamplingParams, num_forced: int) -> None:
        self.params, self.num_forced = params, num_forced
        self.num_beams = params.num_beams or 1
        self.num_hypotheses = params.num_hypotheses
        self.length_penalty = 1.0 if params.length_penalty is None else params.length_penalty
        self.num_candidates = params.num_continuations * self.num_beams
        self.hypotheses: list[Sequence] = []

    def advance(
        self, beams: list[Sequence], sampled: Mapping[int, list[SampledToken]], end: Ends
    ) -> list[Continuation]:
        """Advance the search by one step, and return the beams that continue, best first; none: the search is over.

        beams: the running ones, in the first step only one. sampled: each beam's most likely tokens, by sequence id.
        """
        found = [
            (total + token.logprob + token.boost, beam, token)
            for beam in beams
            for total in (total_of(beam),)
            for token in sampled[beam.seq_id]
        ]
        running: list[Continuation] = []
        for rank, (total, beam, token) in enumerate(self._candidates(found)):
            if rank >= self.num_beams <= len(running):
                break  # the others neither continue nor count as ended
            ended = end(beam, token.token_id)
            if ended is None:
                running.append(Continuation(beam, token, total))
            elif rank < self.num_beams:  # ended continuations count only among the best num_beams
                hypothesis = beam.fork(beam.seq_id, 0)
                hypothesis.append_token(token)
                hypothesis.status, hypothesis.stop_reason = ended
                self._keep(hypothesis)
        running = running[: self.num_beams]
        if not found:  # every token is forbidden: settle for the current beams
            if self.params.guided is not None and not self.hypotheses:
                raise RequestFailedError(DEAD_END)
            for beam in beams:
                beam.status = SequenceStatus.STOPPED
                self._keep(beam)
        return running if running and self._can_improve(running[0]) else []

    def _candidates(self, found: list[Candidate]) -> list[Candidate]:
        """Return the candidates that may be beams or hypotheses, best first."""
        found.sort(key=_TOTAL, reverse=True)
        return found[: self.num_candidates]

    def _keep(self, hypothesis: Sequence) -> None:
        hypothesis.score = self._score(total_of(hypothesis), len(hypothesis.output_token_ids))
        self.hypotheses.append(hypothesis)
        self.hypotheses.sort(key=_score_of, reverse=True)
        del self.hypotheses[self.num_hypotheses :]

    def _can_improve(self, best: Continuation) -> bool:
        """True if the search continues, by the three forms of early_stopping. best: the best running beam."""
        if len(self.hypotheses) < self.num_hypotheses:
            return True
        if self.params.early_stopping is True:
            return False
        length = len(best.parent.output_token_ids) + 1
        if self.params.early_stopping == "never" and self.length_penalty > 0.0:
            length = self.params.max_tokens or length  # the maximum length gives the best score
        return self._score(best.total, length) > _score_of(self.hypotheses[-1])

    def _score(self, total: float, num_tokens: int) -> float:
        """Return the score that ranks hypotheses: ``total / length**length_penalty``."""
        length: float = (num_tokens + self.num_forced) ** self.length_penalty
        return total / length


_TOTAL = itemgetter(0)


def total_of(beam: Sequence) -> float:
    """Return the sum of a beam's log probabilities and of its keywords' boosts."""
    return beam.cumulative_logprob + beam.cumulative_boost


def _score_of(hypothesis: Sequence) -> float:
    return -math.inf if hypothesis.score is None else hypothesis.score
