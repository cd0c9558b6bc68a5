"""BeamSampling: a beam search that draws its beams at random, as transformers' beam sampling does. No torch here."""

from __future__ import annotations

from transept.core.scheduling.beam_search import BeamSearch, Candidate


class BeamSampling(BeamSearch):
    """The state of one request's search.

    In each step, num_candidates continuations of all beams are drawn without replacement, with probabilities
    proportional to exp(total). They are the ones with the highest sums of total and Gumbel noise. The sampler returns
    each beam's candidates by the same rule. Everything else is as in a search without draws.
    """

    def _candidates(self, found: list[Candidate]) -> list[Candidate]:
        found.sort(key=lambda each: each[0] + each[2].noise, reverse=True)
        return super()._candidates(found[: self.num_candidates])
