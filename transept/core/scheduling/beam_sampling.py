"""BeamSampling: a beam search that draws its beams at random, as transformers' beam sampling does. No torch here."""

from __future__ import annotations

from transept.core.scheduling.beam_search import BeamSearch, Continuation


class BeamSampling(BeamSearch):
    """The state of one request's search.

    In each step, num_candidates continuations of all beams are drawn without replacement, with probabilities
    proportional to exp(total). They are the ones with the highest sums of total and Gumbel noise. The sampler returns
    each beam's candidates by the same rule. Everything else is as in a search without draws.
    """

    def _candidates(self, continuations: list[Continuation]) -> list[Continuation]:
        continuations.sort(key=lambda each: each.total + each.token.noise, reverse=True)
        return super()._candidates(continuations[: self.num_candidates])
