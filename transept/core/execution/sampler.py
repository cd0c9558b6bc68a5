"""Sampler: turns rows of logits into tokens, for many requests with different parameters at once.

Rows with equal sampling parameters are processed together, even if their length limits differ, so a batch of similar
requests costs a few tensor operations. A draw is a function of (seed, sample, position) alone and uses no generator
state. So a sample does not depend on other requests in the batch, nor on preemption.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping
from collections.abc import Sequence as Seq

import torch
from torch import Tensor

from transept.core.execution import score_rules
from transept.core.execution.drawn import Chosen, SamplingRow
from transept.core.execution.grammar_masks import GrammarMasks
from transept.core.execution.keyword_scores import KeywordScorer, KeywordScores
from transept.core.execution.logits_processors import call_processors
from transept.core.execution.next_tokens import keep_allowed
from transept.core.execution.noise import gumbel, keys_of, number_of
from transept.core.execution.truncation import truncated
from transept.core.kernels.dispatch import ARGMAX
from transept.core.kernels.transfer import upload
from transept.core.request.grammars import Grammars
from transept.core.request.keywords import TERM_CANDIDATES
from transept.core.request.sampling_params import SamplingParams
from transept.core.scheduling.keyword_search import follows_keywords

Kind = tuple[tuple[Hashable, ...], int]  # SamplingParams.sampling_key, samples


MOST_CACHED, LEAST_CACHED = 1 << 20, 64  # token ids in all cached lists; overhead added for each list


class Sampler:
    """Applies penalties, bias and suppression, then takes the argmax, draws, or lists a beam's candidates.

    grammars: compiles the forms of outputs for this model; None: no request has any.
    """

    def __init__(self, device: torch.device, grammars: Grammars | None = None) -> None:
        self.device = device
        self._masks = None if grammars is None else GrammarMasks(device, grammars)
        self._score_keywords = KeywordScorer(device)
        self._index_cache: dict[tuple[int, ...], Tensor] = {}  # token ids -> their tensor
        self._num_cached = 0  # token ids in it, with overhead
        self._kinds: list[Kind] = []  # of the last call's rows; _alike groups the equal ones
        self._alike: list[list[int]] = []

    def __call__(self, logits: Tensor, rows: list[SamplingRow]) -> list[Chosen]:
        """Choose the next tokens, num_samples for each row. Writes into logits: [rows, vocabulary], any float dtype."""
        kinds = [(row.params.sampling_key, row.num_samples) for row in rows]
        if kinds != self._kinds:  # usually the same objects, which compare equal at once
            self._kinds, self._alike = kinds, _alike(kinds)
        chosen: list[Chosen] = []
        for indices in self._alike:
            own = logits if len(indices) == len(rows) else logits.index_select(0, upload(indices, self.device))
            chosen.append(self._choose(own.float(), rows[indices[0]].params, [rows[index] for index in indices]))
        return chosen

    def _choose(self, logits: Tensor, params: SamplingParams, rows: list[SamplingRow]) -> Chosen:
        """Choose tokens for rows [rows, vocabulary] with equal `sampling_key`. params: of one of the rows."""
        if params.beam_search:
            logprobs = logits.log_softmax(dim=-1)  # before penalties and bans
            self._process(logprobs, params, rows)
            noise = _beam_noise(logprobs, params, rows) if params.draws_beams else None
            if noise is not None:
                logprobs = truncated(_tempered(logprobs, params), params, params.num_continuations)
            if params.renormalize_logits:
                logprobs = score_rules.normalized(logprobs)
            top = _top_k(logprobs, params.logprobs) if params.logprobs else None
            number = min(rows[0].num_samples, logprobs.shape[-1])
            if noise is not None:
                tokens = (logprobs + noise).topk(number, dim=-1).indices
                of_tokens = logprobs.gather(-1, tokens)
                return Chosen(rows, tokens, of_tokens, top, forbidden=True, noise=noise.gather(-1, tokens))
            if not params.keywords:
                return Chosen(rows, *_top_k(logprobs, number), top, forbidden=True)
            scores = self._score_keywords(params.keywords, [row.data for row in rows])  # type: ignore[arg-type]
            plain = logprobs.topk(max(1, number - TERM_CANDIDATES), dim=-1).indices
            return _with_terms(rows, plain, logprobs, 0.0, scores, top)
        self._process(logits, params, rows)
        if params.keywords:
            return self._choose_with_keywords(logits, params, rows)
        argmax = ARGMAX.serving(logits) if params.greedy and not params.logprobs else None
        if argmax is not None:
            return Chosen(rows, *argmax(logits), None)
        drawn = logits.argmax(dim=-1, keepdim=True) if params.greedy else _draw(logits, params, rows)
        logprobs = logits.log_softmax(dim=-1)
        top = _top_k(logprobs, params.logprobs) if params.logprobs else None
        return Chosen(rows, drawn, logprobs.gather(-1, drawn), top)

    def _choose_with_keywords(self, logits: Tensor, params: SamplingParams, rows: list[SamplingRow]) -> Chosen:
        """Choose by the sum of logits and keyword scores. The returned log probabilities exclude the scores.

        A KeywordSearch gets each row's most likely token, and the best tokens that have a keyword score.
        """
        scores = self._score_keywords(params.keywords, [row.data for row in rows])  # type: ignore[arg-type]
        argmax = ARGMAX.serving(logits) if params.greedy and not params.logprobs else None
        if argmax is not None:
            best, of_best = argmax(logits)
            total, top = logits.gather(-1, best) - of_best, None
        else:
            total = logits.logsumexp(dim=-1, keepdim=True)
            best = logits.argmax(dim=-1, keepdim=True)
            top = _top_k(logits - total, params.logprobs) if params.logprobs else None
        if follows_keywords(params):
            return _with_terms(rows, best, logits, total, scores, top)
        if params.greedy:
            chosen = scores.best(logits, best)
        else:
            plain = scores.add_to(logits)
            chosen = _draw(logits, params, rows)
            scores.restore(logits, plain)
        return Chosen(rows, chosen, logits.gather(-1, chosen) - total, top, boosts=scores.of(chosen))

    def _process(self, logits: Tensor, params: SamplingParams, rows: list[SamplingRow]) -> None:
        """Apply penalties, bias, rules that forbid tokens, and rules that force one. In place on [rows, vocabulary]."""
        score_rules.apply(score_rules.EARLY_RULES, logits, params, rows)
        _penalize(logits, params, rows)
        if params.logit_bias:
            tokens, values = zip(*params.logit_bias, strict=True)
            logits[:, self._index(tokens)] += upload(values, self.device, torch.float32)
        if params.forbids_runs:
            _forbid_runs(logits, params, rows)
        if params.allowed_token_ids is not None:
            allowed = self._index(tuple(params.allowed_token_ids))
            kept = logits[:, allowed]
            logits.fill_(float("-inf"))
            logits[:, allowed] = kept
        if params.min_tokens:
            short = [i for i, row in enumerate(rows) if len(row.data.output_token_ids) < params.min_tokens]
            _forbid(logits, short, self._index((*(params.eos_token_ids or ()), *params.stop_token_ids)))
        if params.suppress_tokens:
            logits.index_fill_(1, self._index(tuple(params.suppress_tokens)), float("-inf"))
        if params.begin_suppress_tokens:
            begin = [i for i, row in enumerate(rows) if len(row.data.output_token_ids) == int(_forces_bos(row))]
            _forbid(logits, begin, self._index(tuple(params.begin_suppress_tokens)))
        if params.guided is not None and self._masks is not None:
            forms = [(form, row.data, int(_forces_bos(row))) for row in rows if (form := row.params.guided)]
            self._masks.forbid(logits, forms, params.eos_token_ids or ())
        if params.logits_processors:
            call_processors(logits, params.logits_processors, [row.data for row in rows])
            if params.beam_search:
                logits.copy_(logits.log_softmax(dim=-1))
        if params.allowed_next_tokens is not None:
            keep_allowed(logits, params.allowed_next_tokens, [row.data for row in rows])
        if params.forced_bos_token_id is not None:
            first = [i for i, row in enumerate(rows) if _forces_bos(row) and not row.data.output_token_ids]
            self._force(logits, first, (params.forced_bos_token_id,))
        if params.forced_eos_token_id and params.max_tokens is not None:
            last = [i for i, row in enumerate(rows) if len(row.data.output_token_ids) == params.max_tokens - 1]
            self._force(logits, last, tuple(params.forced_eos_token_id))  # type: ignore[arg-type]
        score_rules.apply(score_rules.LATE_RULES, logits, params, rows)

    def _force(self, logits: Tensor, rows: list[int], token_ids: tuple[int, ...]) -> None:
        """Set the logits of these tokens to 0, and all others to minus infinity."""
        if rows:
            index = upload(rows, self.device)
            logits.index_fill_(0, index, float("-inf"))
            logits[index[:, None], self._index(token_ids)] = 0.0

    def _index(self, token_ids: tuple[int, ...]) -> Tensor:
        if (index := self._index_cache.get(token_ids)) is None:
            size = len(token_ids) + LEAST_CACHED
            if self._num_cached + size > MOST_CACHED:
                self._index_cache.clear()
                self._num_cached = 0
            index = self._index_cache[token_ids] = upload(token_ids, self.device)
            self._num_cached += size
        return index


def _with_terms(
    rows: list[SamplingRow],
    plain: Tensor,
    logits: Tensor,
    total: Tensor | float,
    scores: KeywordScores,
    top: tuple[Tensor, Tensor] | None,
) -> Chosen:
    """Add the best tokens of keywords to the most likely ones, `plain` [rows, tokens], for a KeywordSearch.

    logits: [rows, vocabulary], without scores. total: [rows, 1], to subtract from logits for log probabilities.
    """
    chosen, is_new = scores.joined(plain, logits, TERM_CANDIDATES)
    logprobs = logits.gather(-1, chosen) - total
    logprobs[:, plain.shape[1] :].masked_fill_(~is_new, float("-inf"))
    return Chosen(rows, chosen, logprobs, top, forbidden=True)


def _alike(kinds: list[Kind]) -> list[list[int]]:
    """Group the indices of equal kinds."""
    alike: dict[Kind, list[int]] = {}
    for index, kind in enumerate(kinds):
        alike.setdefault(kind, []).append(index)
    return list(alike.values())


def _forbid(logits: Tensor, rows: list[int], token_ids: Tensor) -> None:
    if rows and len(token_ids):
        logits[upload(rows, logits.device)[:, None], token_ids] = float("-inf")


def _penalize(logits: Tensor, params: SamplingParams, rows: list[SamplingRow]) -> None:
    """Repetition penalty over prompt and output (Keskar et al. 2019), presence and frequency over the output."""
    repetition = params.repetition_penalty or 1.0
    if repetition == 1.0 and not params.presence_penalty and not params.frequency_penalty:
        return
    if repetition != 1.0:
        seen = _places({i: {*row.data.prompt_token_ids, *row.data.output_token_ids} for i, row in enumerate(rows)})
        places = upload(seen, logits.device).unbind()
        values = logits[places]
        logits[places] = torch.where(values > 0, values / repetition, values * repetition)
    if params.presence_penalty or params.frequency_penalty:
        counts = {i: Counter(row.data.output_token_ids) for i, row in enumerate(rows)}
        times = upload([count for each in counts.values() for count in each.values()], logits.device)
        places = upload(_places(counts), logits.device).unbind()
        logits[places] -= params.presence_penalty + params.frequency_penalty * times


def _places(tokens: Mapping[int, Collection[int]]) -> list[list[int]]:
    """Return index lists (rows, tokens) of all tokens of all rows."""
    return [[row for row, own in tokens.items() for _ in own], [token for own in tokens.values() for token in own]]


def _forces_bos(row: SamplingRow) -> bool:
    """Return True if the row's first new token is forced: only after a decoder prompt of one token."""
    return row.params.forced_bos_token_id is not None and len(row.data.prompt_token_ids) == 1


def _forbid_runs(logits: Tensor, params: SamplingParams, rows: list[SamplingRow]) -> None:
    """Forbid the tokens that would complete a repeated n-gram (Paulus et al. 2017) or one of bad_words_ids."""
    forbidden: dict[int, set[int]] = {}
    for i, row in enumerate(rows):
        tokens = row.data.token_ids
        own = forbidden[i] = _repeating(tokens, tokens, params.no_repeat_ngram_size or 0)
        own |= _repeating(tokens, row.data.encoder_token_ids, params.encoder_no_repeat_ngram_size or 0)
        for *begin, last in params.bad_words_ids or ():
            if tokens[len(tokens) - len(begin) :] == begin:
                own.add(last)
        own -= {token for token in own if token >= logits.shape[1]}  # of the encoder's vocabulary, or the tokenizer's
    logits[upload(_places(forbidden), logits.device).unbind()] = float("-inf")


def _repeating(tokens: Seq[int], earlier: Seq[int], size: int) -> set[int]:
    """Return the next tokens that would complete an n-gram of `size` tokens that is in `earlier`; none for size 0."""
    if not 0 < size <= len(tokens) + 1:
        return set()
    start = (*tokens[len(tokens) + 1 - size :],)
    windows = zip(*(earlier[offset:] for offset in range(size)), strict=False)
    return {window[-1] for window in windows if window[:-1] == start}


def _draw(logits: Tensor, params: SamplingParams, rows: list[SamplingRow]) -> Tensor:
    """Draw random tokens, num_samples for each row of [rows, vocabulary], by the Gumbel-max trick.

    The draw is ``argmax(logits - log E)``, where E is exponentially distributed, one for each token. With inverse
    transform sampling, an error of 1e-6 in one cumulative probability would move every later boundary. This draw
    changes only if the two best tokens tie to within the rounding error, so it is the same in other batches.
    """
    # Subtract the maximum first, so that a tiny temperature overflows nothing.
    scaled = truncated(_tempered(logits - logits.max(dim=-1, keepdim=True).values, params), params)
    drawn = []
    for sample in range(rows[0].num_samples):
        # A draw depends on the logits, the seed, the sample's index and the position.
        keys = keys_of(
            [(row.params.seed or 0, row.data.sample_index + sample, len(row.data.output_token_ids)) for row in rows]
        )
        drawn.append(gumbel(keys, logits.shape[-1], logits.device).add_(scaled).argmax(dim=-1))
    return torch.stack(drawn, dim=-1)


def _beam_noise(logprobs: Tensor, params: SamplingParams, rows: list[SamplingRow]) -> Tensor:
    """Return the noise by which continuations of beams are drawn, like `logprobs` [rows, vocabulary].

    The highest sums of score and Gumbel noise are a sample without replacement (Kool et al. 2019). The noise is a
    function of the seed and the beam's tokens, so it does not depend on the beam's rank.
    """
    keys = keys_of([(row.params.seed or 0, number_of(row.data.output_token_ids)) for row in rows])
    return gumbel(keys, logprobs.shape[-1], logprobs.device)


def _tempered(logits: Tensor, params: SamplingParams) -> Tensor:
    """Divide by the temperature, which is kept above 0."""
    assert params.temperature is not None
    return logits / max(params.temperature, torch.finfo(torch.float32).tiny)


def _top_k(logprobs: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the `count` most likely tokens of [rows, vocabulary] and their log probabilities, [rows, count] each."""
    values, indices = logprobs.topk(count, dim=-1)
    return indices, values
