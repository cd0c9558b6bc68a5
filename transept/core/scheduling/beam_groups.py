"""BeamGroups: diverse beam search (Vijayakumar et al. 2016), as in transformers' group beam search. No torch here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from transept.core.request.sampling_params import SamplingParams
from transept.core.scheduling.beam_search import BeamSearch, Continuation, Ends
from transept.core.scheduling.sequence import SampledToken, Sequence


class BeamGroups(BeamSearch):
    """The state of one request's search: a beam search for each group, with num_beams divided by their number.

    In each step the groups choose one after the other. A token's log probability is lower by diversity_penalty for each
    beam of an earlier group that chose the token in this step. As in transformers, hypotheses are ranked by the lowered
    log probabilities.

    num_candidates: tokens that the sampler returns for each beam: enough for a group after all tokens that earlier
    groups can choose are penalized.
    """

    def __init__(self, params: SamplingParams, num_forced: int) -> None:
        super().__init__(params, num_forced)
        num_groups = params.num_beam_groups or 1
        size = self.num_beams // num_groups
        of_group = replace(params, num_beams=size, num_return_sequences=1, num_beam_groups=1, diversity_penalty=0.0)
        self.groups = [BeamSearch(of_group, num_forced) for _ in range(num_groups)]
        self.num_candidates = self.groups[0].num_candidates + size * (num_groups - 1)
        self._sizes: list[int] | None = None  # running beams of each group, in the order of beams; None: not begun

    def advance(
        self, beams: list[Sequence], sampled: Mapping[int, list[SampledToken]], end: Ends
    ) -> list[Continuation]:
        """Advance the search by one step; see `BeamSearch.advance`."""
        chosen: Counter[int] = Counter()  # tokens of earlier groups
        running: list[Continuation] = []
        first, sizes = 0, []
        for index, group in enumerate(self.groups):
            own = beams
            if self._sizes is not None:
                own = beams[first : first + self._sizes[index]]
                first += len(own)
            found = group.advance(own, {seq.seq_id: self._lowered(seq, sampled, chosen) for seq in own}, end)
            running += found
            sizes.append(len(found))
            chosen.update(each.token.token_id for each in found)
        self._sizes = sizes
        self.hypotheses = [hypothesis for group in self.groups for hypothesis in group.hypotheses]
        self.hypotheses.sort(key=lambda each: each.score or 0.0, reverse=True)
        return running

    def _lowered(
        self, beam: Sequence, sampled: Mapping[int, list[SampledToken]], chosen: Counter[int]
    ) -> list[SampledToken]:
        """Return a beam's most likely tokens, best first, with the penalties for `chosen` tokens."""
        if not chosen:
            return sampled[beam.seq_id]
        penalty, repetition = self.params.diversity_penalty or 0.0, self.params.repetition_penalty or 1.0
        seen = {*beam.prompt_token_ids, *beam.output_token_ids} if repetition != 1.0 else set()
        tokens = [
            # transformers multiplies by the repetition penalty afterwards
            token._replace(
                logprob=token.logprob
                - penalty * chosen[token.token_id] * (repetition if token.token_id in seen else 1.0)
            )
            for token in sampled[beam.seq_id]
        ]
        return sorted(tokens, key=lambda each: each.logprob, reverse=True)
