"""KeywordSearch: greedy decoding or a beam search, with more sequences that follow keywords.

A follower ends when its keyword is complete or breaks off. Each request with keywords that does not sample has a
KeywordSearch. The engine core calls it after every step, like a BeamSearch. No torch here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from transept.core.request.keyword_tree import tree_of
from transept.core.request.keywords import FOLLOWERS, TERM_CANDIDATES, Spellings
from transept.core.request.sampling_params import SamplingParams
from transept.core.scheduling.beam_search import BeamSearch, Continuation, Ends, total_of
from transept.core.scheduling.sequence import SampledToken, Sequence, SequenceStatus

MOST_SEQS = 1 << 30  # no limit
SLACK = 4.0  # nats; a follower is dropped if its total is so far below the best sure total
REACH = 25 / 6  # a term's first token may be REACH * its boost nats less likely than the likeliest token
DOUBT = 1.2  # per nat; REACH is multiplied by DOUBT times the likeliest token's negative log probability, at most by 1
AGREEMENT = 3  # a greedy search keeps one beam after this many tokens without an open match
ROUNDING = 1e-3  # nats; smaller differences between sums of boosts are rounding errors
REPEATS = 16  # tokens in which a term gets its boosts once, so that boosts cause no repetition
ContinuesWord = Callable[[int, int], bool]  # (last token, next token); see StopChecker.continues_word


@dataclass(slots=True)
class Branch(Continuation):
    """A continuation of a beam by one token.

    sure: its total without the boosts of its open match, as if the match broke off.
    begins: True if it may be a follower: it continues a match, or its token is likely enough to begin one.
    """

    sure: float
    begins: bool


def follows_keywords(params: SamplingParams) -> bool:
    """True if a KeywordSearch decodes the request.

    Greedy requests with stop strings are excluded: stop strings need a text that only grows.
    """
    return bool(params.keywords and (params.beam_search or (params.greedy and not params.stop)))


def never(last: int, token: int) -> bool:
    """Return False, as a ContinuesWord without a tokenizer."""
    return False


class KeywordSearch(BeamSearch):
    """The state of one request's search: a beam search, or a greedy one as a search with one beam.

    A match is open until its term is complete and its word has ended. Beams are ranked by their sure totals, as if
    their open matches broke off. So a keyword displaces no beam before it is complete. Up to FOLLOWERS more sequences
    follow open matches that are not among the beams, while their totals are within SLACK. A follower begins from a
    beam where the model is in doubt.

    num_candidates: tokens that the sampler returns for each beam: the most likely ones, and TERM_CANDIDATES that begin
    or continue a term. width: maximum number of sequences.
    """

    def __init__(
        self,
        params: SamplingParams,
        num_forced: int,
        most_seqs: int = MOST_SEQS,
        continues_word: ContinuesWord = never,
    ) -> None:
        super().__init__(params, num_forced)
        assert isinstance(params.keywords, Spellings)  # the input processor has tokenized them
        self.tree, self.continues_word = tree_of(params.keywords), continues_word
        if self.num_beams == 1:  # a greedy search needs one candidate, and ranks texts by their totals
            self.num_candidates, self.length_penalty = 1, 0.0
        self.num_candidates += TERM_CANDIDATES
        self.width = max(self.num_beams, min(self.num_beams + FOLLOWERS, most_seqs))
        self._num_closed = 0  # tokens since a match was open

    def advance(
        self, beams: list[Sequence], sampled: Mapping[int, list[SampledToken]], end: Ends
    ) -> list[Continuation]:
        """Advance the search by one step; see `BeamSearch.advance`."""
        branches = [
            branch
            for rank, beam in enumerate(beams)
            for branch in self._branches(beam, sampled[beam.seq_id], may_begin=rank < self.num_beams)
        ]
        branches.sort(key=lambda each: each.sure, reverse=True)
        running: list[Branch] = []
        for rank, branch in enumerate(branches):
            ended = end(branch.parent, branch.token.token_id)
            if ended is None:
                running.append(branch)
            elif rank < self.num_beams:
                hypothesis = branch.parent.fork(branch.parent.seq_id, 0)
                hypothesis.append_token(branch.token)
                hypothesis.status, hypothesis.stop_reason = ended
                self._keep(hypothesis)
        if not branches:  # every token is forbidden: settle for the current beams
            for beam in beams:
                beam.status = SequenceStatus.STOPPED
                self._keep(beam)
        return [each for each in self._kept(running) if self._can_win(each)]

    def _branches(self, beam: Sequence, tokens: list[SampledToken], may_begin: bool) -> list[Branch]:
        """Return a beam with each of its next tokens, without tokens that are too unlikely to begin a keyword.

        may_begin: False for a follower, from which no other follower begins.
        """
        tree, output, found = self.tree, beam.output_token_ids, []
        state, total = tree.state(output), total_of(beam)
        is_open, unended = tree.refund(state) > 0.0, tree.unended(state)
        likeliest = max([token.logprob for token in tokens], default=0.0)
        reach = REACH * min(1.0, DOUBT * -likeliest) if may_begin else 0.0
        num_plain = self.num_candidates - TERM_CANDIDATES if self.width > self.num_beams else len(tokens)
        for place, token in enumerate(tokens):
            boost, refund, begins = tree.gain(state, token.token_id), 0.0, False
            if is_open or boost != 0.0:
                after = tree.next(state, token.token_id)
                begins = tree.length(after) > 1 or token.logprob > likeliest - reach * boost
                refund = tree.refund(after) + tree.unended(after)
                if repeated := tree.repeated(after, [*output, token.token_id], REPEATS):
                    boost, refund = boost - repeated, 0.0
            if place >= num_plain and not begins:
                continue
            if unended and boost <= 0.0 and self.continues_word(output[-1], token.token_id):
                boost -= unended
            if boost != 0.0:
                token = token._replace(boost=boost)
            of_branch = total + token.logprob + boost
            found.append(Branch(beam, token, of_branch, of_branch - refund, begins))
        return found

    def _kept(self, running: list[Branch]) -> list[Branch]:
        """Return the beams, the best ones by `sure`, and their followers. With a width of 1, return the highest total.

        A greedy search also keeps sequences without an open match, until none was open for AGREEMENT tokens.
        """
        if self.width == 1:
            return sorted(running, key=lambda each: each.total, reverse=True)[:1]
        kept, followers = running[: self.num_beams], []
        compares = self.num_beams == 1 and self._num_closed < AGREEMENT
        for each in running[self.num_beams :]:
            may_win = each.total > kept[0].sure - SLACK and each.token.boost >= 0.0  # below 0: the token broke a match
            if may_win and (each.begins if each.total > each.sure else compares):
                followers.append(each)
        followers.sort(key=lambda each: each.total, reverse=True)
        kept += followers[: self.width - self.num_beams]
        is_open = any(each.total > each.sure for each in kept)
        self._num_closed = 0 if is_open else self._num_closed + 1
        return kept

    def _can_win(self, branch: Branch) -> bool:
        """Return False if the search has all its hypotheses and the branch is not better than the best of them.

        A branch with the same boosts as the best hypothesis also cannot win.
        """
        if len(self.hypotheses) < self.num_hypotheses:
            return True
        best, boost = self.hypotheses[0], branch.parent.cumulative_boost + branch.token.boost
        score = self._score(branch.total, len(branch.parent.output_token_ids) + 1)
        return abs(boost - best.cumulative_boost) > ROUNDING and score > (best.score or 0.0)
