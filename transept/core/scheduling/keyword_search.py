"""KeywordSearch: greedy decoding that also follows keywords, until one of the beams is clearly better.

Each such request has its own KeywordSearch. Like a BeamSearch, the engine core calls it after every step. No torch
here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from transept.core.request.keyword_tree import tree_of
from transept.core.request.keywords import SEARCH_WIDTH, Spellings
from transept.core.request.sampling_params import SamplingParams
from transept.core.scheduling.beam_search import Continuation, End, total_of
from transept.core.scheduling.sequence import SampledToken, Sequence, SequenceStatus

SLACK = 4.0  # a beam is dropped if its total is this far below the best sure total
AGREEMENT = 3  # only the best beam continues after more tokens than this without an open match


@dataclass(frozen=True)
class Branch(Continuation):
    """A continuation. sure: its total if its open match breaks, which takes the match's boosts back."""

    sure: float


def follows_keywords(params: SamplingParams) -> bool:
    """True if a KeywordSearch decodes the request. Stop strings exclude it: they need a text that only grows."""
    return bool(params.keywords and params.greedy and not params.beam_search and not params.stop)


class KeywordSearch:
    """The state of one request's search.

    Usually there is one beam, which grows greedily. Where a keyword may begin, a second beam follows it. A match is
    open until its term is complete. The beams are compared by their sure totals, but none is dropped while its open
    match could still win.

    hypotheses: the best beam that has ended, if any. It holds no blocks. num_candidates: tokens that the sampler
    returns for each beam: the most likely one, and the best keyword tokens.
    """

    def __init__(self, params: SamplingParams, width: int) -> None:
        assert isinstance(params.keywords, Spellings)  # the input processor has tokenized them
        self.tree = tree_of(params.keywords)
        self.width, self.num_candidates = width, SEARCH_WIDTH
        self.hypotheses: list[Sequence] = []
        self._num_closed = 0  # tokens since a match was open

    def advance(
        self, beams: list[Sequence], sampled: Mapping[int, list[SampledToken]], end: Callable[[int, int], End | None]
    ) -> list[Branch]:
        """Advance the search by one step; see `BeamSearch.advance`. sampled: the most likely token first."""
        branches = self._kept(self._branches(beams, sampled))
        running: list[Branch] = []
        for branch in branches:
            ended = end(branch.token.token_id, len(branch.parent.output_token_ids) + 1)
            if ended is None:
                running.append(branch)
            else:
                hypothesis = branch.parent.fork(branch.parent.seq_id, 0)
                hypothesis.append_token(branch.token)
                hypothesis.status, hypothesis.stop_reason = ended
                self._end(hypothesis, branch.sure)
        if not branches:  # every token is forbidden: settle for the best beam
            beams[0].status = SequenceStatus.STOPPED
            self._end(beams[0], total_of(beams[0]))
        best = max((self._score(each) for each in self.hypotheses), default=-math.inf)
        return [branch for branch in running if branch.total > best]

    def _branches(self, beams: list[Sequence], sampled: Mapping[int, list[SampledToken]]) -> list[Branch]:
        """Return the beams with each of their tokens, without those that are clearly behind."""
        found = [
            (beam, token, total_of(beam) + token.logprob + token.boost)
            for beam in beams
            for token in sampled[beam.seq_id]
        ]
        # A token without a boost is outside of keywords, so all of its total is sure.
        floor = max((total for _, token, total in found if token.boost == 0.0), default=-math.inf) - SLACK
        return [
            Branch(beam, token, total, total - self._refund(beam, token))
            for beam, token, total in found
            if total > floor
        ]

    def _refund(self, beam: Sequence, token: SampledToken) -> float:
        return 0.0 if token.boost == 0.0 else self.tree.refund([*beam.output_token_ids, token.token_id])

    def _kept(self, branches: list[Branch]) -> list[Branch]:
        """Return the branches to keep, the highest `sure` first. With one beam, keep the highest total.

        If this token broke a branch's match, its boost is negative, and only the first branch may be such a one.
        """
        if self.width == 1:
            return sorted(branches, key=lambda each: each.total, reverse=True)[:1]
        branches.sort(key=lambda each: each.sure, reverse=True)
        floor = branches[0].sure - SLACK if branches else 0.0
        others = [each for each in branches[1:] if each.total > floor and each.token.boost >= 0.0]
        others.sort(key=lambda each: each.total, reverse=True)
        kept = [*branches[:1], *others[: self.width - 1]]
        is_open = any(each.total > each.sure for each in kept)
        self._num_closed = 0 if is_open else self._num_closed + 1
        return kept[:1] if self._num_closed > AGREEMENT else kept

    def _end(self, hypothesis: Sequence, sure: float) -> None:
        hypothesis.score = sure
        self.hypotheses = [max([*self.hypotheses, hypothesis], key=self._score)]

    @staticmethod
    def _score(hypothesis: Sequence) -> float:
        return -math.inf if hypothesis.score is None else hypothesis.score
