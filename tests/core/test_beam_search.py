"""The beam search's own rules on small tables of log probabilities, against exhaustive search and by hand."""

import dataclasses
import itertools
import math
from itertools import count

import numpy as np
import pytest

from transept.core.request.inputs import DecoderInputs, EncoderDecoderInputs, EncoderInputs
from transept.core.request.sampling_params import SamplingParams
from transept.core.scheduling.beam_search import BeamSearch
from transept.core.scheduling.sequence import SampledToken, Sequence, SequenceStatus

EOS = 0
VOCAB_SIZE = 4
MAX_TOKENS = 5
INPUTS = EncoderDecoderInputs(EncoderInputs(None, [1], 1), DecoderInputs(None, [1]))


def random_table(seed: int) -> np.ndarray:
    """[position, last token, next token]: log probabilities."""
    logits = np.random.default_rng(seed).normal(0.0, 1.5, size=(MAX_TOKENS, VOCAB_SIZE, VOCAB_SIZE))
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def next_logprobs(table: np.ndarray, tokens: list[int]) -> np.ndarray:
    """[next token], after these new ones; a table without positions is the same at all of them."""
    at_position = table if table.ndim == 2 else table[len(tokens)]
    return at_position[tokens[-1] if tokens else 1]


def search(table: np.ndarray, num_steps_limit: int = 100, **options) -> tuple[list[Sequence], int]:
    """A whole search as the engine drives it, without blocks. Returns the hypotheses and the steps taken."""
    settings = {"length_penalty": 1.0, "early_stopping": False, "max_tokens": MAX_TOKENS, "min_tokens": 0} | options
    params = SamplingParams(**settings)
    state = BeamSearch(dataclasses.replace(params, eos_token_ids=(EOS,)), num_forced=0)
    new_id = count(1)
    beams = [Sequence(0, INPUTS)]

    def end(beam, token):
        if token == EOS:
            return SequenceStatus.STOPPED, None
        return (SequenceStatus.LENGTH, None) if len(beam.output_token_ids) + 1 == params.max_tokens else None

    for step in range(1, num_steps_limit):
        sampled = {}
        for beam in beams:
            logprobs = next_logprobs(table, beam.output_token_ids)
            best = [token for token in np.argsort(-logprobs)[: state.num_candidates] if logprobs[token] > -math.inf]
            sampled[beam.seq_id] = [SampledToken(int(token), float(logprobs[token]), None) for token in best]
        going_on = state.advance(beams, sampled, end)
        if not going_on:
            return state.hypotheses, step
        beams = [continuation.parent.fork(next(new_id), 0) for continuation in going_on]
        for beam, continuation in zip(beams, going_on, strict=True):
            beam.append_token(continuation.token)
    raise AssertionError("the search does not end")


def exhaustive(table: np.ndarray, length_penalty: float) -> list[tuple[float, tuple[int, ...]]]:
    """Every output that ends, with its score, best first."""
    scored = []
    for length in range(1, MAX_TOKENS + 1):
        for tokens in itertools.product(range(VOCAB_SIZE), repeat=length):
            ends_early = EOS in tokens[:-1]
            ends = tokens[-1] == EOS or length == MAX_TOKENS
            if ends and not ends_early:
                total = sum(next_logprobs(table, list(tokens[:i]))[token] for i, token in enumerate(tokens))
                scored.append((total / length**length_penalty, tokens))
    return sorted(scored, reverse=True)


@pytest.mark.parametrize("length_penalty", [-1.0, 0.0, 0.5, 2.0])
@pytest.mark.parametrize("seed", range(5))
def test_wide_enough_beams_that_never_stop_early_find_the_best_outputs(seed: int, length_penalty: float) -> None:
    table = random_table(seed)
    width = VOCAB_SIZE**MAX_TOKENS
    hypotheses, _ = search(table, num_beams=width, length_penalty=length_penalty, early_stopping="never")
    best = exhaustive(table, length_penalty)
    assert [tuple(each.output_token_ids) for each in hypotheses] == [tokens for _, tokens in best]
    assert [each.score for each in hypotheses] == pytest.approx([score for score, _ in best])


def test_early_stopping_ends_with_the_first_num_beams_hypotheses() -> None:
    """The best output comes late: only a search that looks on finds it."""
    table = np.full((VOCAB_SIZE, VOCAB_SIZE), -math.inf)
    table[1] = np.log([0.3, 0.01, 0.4, 0.29])  # from the start: end, stay, 2, 3
    table[2] = np.log([0.02, 0.01, 0.95, 0.02])  # 2 repeats itself
    table[3] = np.log([0.97, 0.01, 0.01, 0.01])
    results = {
        early: search(table, num_beams=2, length_penalty=2.0, early_stopping=early, max_tokens=20)
        for early in (True, False, "never")
    }
    assert results[True][1] <= results[False][1] <= results["never"][1]
    assert results[True][1] < results["never"][1]
    assert results["never"][0][0].output_token_ids == [2] * 20
    assert results["never"][0][0].status is SequenceStatus.LENGTH
    assert [each.output_token_ids for each in results[True][0]] == [[3, EOS], [EOS]]


def test_a_length_penalty_favours_long_or_short_outputs() -> None:
    table = np.full((VOCAB_SIZE, VOCAB_SIZE), -math.inf)
    table[1] = table[2] = np.log([0.5, 1e-9, 0.5, 1e-9])
    long, _ = search(table, num_beams=3, length_penalty=2.0, early_stopping="never")
    short, _ = search(table, num_beams=3, length_penalty=-2.0, early_stopping="never")
    assert len(long[0].output_token_ids) == MAX_TOKENS
    assert short[0].output_token_ids == [EOS]


def test_a_dead_end_ends_the_search_with_what_there_is() -> None:
    table = np.full((VOCAB_SIZE, VOCAB_SIZE), -math.inf)
    table[1, 2] = 0.0  # and nothing follows 2
    hypotheses, steps = search(table, num_beams=2)
    assert steps == 2
    assert [each.output_token_ids for each in hypotheses] == [[2]]
    assert hypotheses[0].finished


def test_where_every_beam_ends_as_many_go_on() -> None:
    """Whether it is an end-of-sequence token or another one that stops."""
    params = SamplingParams(
        num_beams=2, length_penalty=1.0, early_stopping="never", max_tokens=9, stop_token_ids=[1, 2]
    )
    state = BeamSearch(dataclasses.replace(params, eos_token_ids=(EOS,)), num_forced=0)
    beams = [Sequence(index, INPUTS) for index in range(2)]
    sampled = {
        beam.seq_id: [SampledToken(token, -1.0 - 0.1 * token, None) for token in range(state.num_candidates)]
        for beam in beams
    }
    going_on = state.advance(
        beams, sampled, lambda _, token: (SequenceStatus.STOPPED, token) if token in (EOS, 1, 2) else None
    )
    assert [each.token.token_id for each in going_on] == [3, 3]


def test_an_ending_below_the_beams_is_no_hypothesis() -> None:
    """As in transformers: of the candidates only the best num_beams may end."""
    table = np.full((VOCAB_SIZE, VOCAB_SIZE), -math.inf)
    table[1] = np.log([0.1, 0.1, 0.5, 0.3])
    table[2] = table[3] = np.log([0.9, 0.04, 0.03, 0.03])
    hypotheses, _ = search(table, num_beams=2, early_stopping=True)
    assert [EOS] not in [each.output_token_ids for each in hypotheses]
    assert hypotheses[0].output_token_ids == [2, EOS]
