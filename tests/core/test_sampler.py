"""The sampler against transformers' logits processors, hand-written loops and the distributions it should draw from."""

import dataclasses
from collections import Counter
from copy import copy

import pytest
import torch
from scipy.stats import chisquare
from transformers import (
    EncoderNoRepeatNGramLogitsProcessor,
    EncoderRepetitionPenaltyLogitsProcessor,
    EpsilonLogitsWarper,
    EtaLogitsWarper,
    ExponentialDecayLengthPenalty,
    ForcedBOSTokenLogitsProcessor,
    ForcedEOSTokenLogitsProcessor,
    InfNanRemoveLogitsProcessor,
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    MinPLogitsWarper,
    NoBadWordsLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    SuppressTokensAtBeginLogitsProcessor,
    SuppressTokensLogitsProcessor,
    TemperatureLogitsWarper,
    TopHLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from transept.core.execution.drawn import Drawn, SamplingRow
from transept.core.execution.sampler import Sampler
from transept.core.execution.truncation import truncated
from transept.core.request.sampling_params import SamplingParams
from transept.core.scheduling.step import SequenceData

VOCAB_SIZE = 60
EOS = 2
PROMPT = [2, 0]
OUTPUT = [5, 9, 5, 17, 5, 30]
READ = torch.tensor([[0, 9, 5, 30, 7, 17, 5, 30, 11, 5, 12, 2, 0, 4, 5, 9, 5, 17, 5, 30, 6]])  # by the encoder
CPU = torch.device("cpu")
ALL = VOCAB_SIZE  # as logprobs: every token's


def new_sampler():
    """A sampler whose draws are collected at once."""
    sampler = Sampler(CPU)
    return lambda logits, rows: Drawn(sampler(logits, rows)).collect()


@pytest.fixture
def sampler():
    return new_sampler()


def random_logits(rows, seed=0, spread=3.0):
    return torch.randn(rows, VOCAB_SIZE, generator=torch.Generator().manual_seed(seed)) * spread


def row(params, seq_id=0, output=(), prompt=PROMPT, sample_index=0, num_samples=1):
    params = dataclasses.replace(params, eos_token_ids=(EOS,))
    data = SequenceData(list(prompt), list(output), sample_index, READ[0].tolist())
    return SamplingRow(seq_id, data, params, num_samples)


def all_logprobs(sampler, logits, params, outputs):
    """[rows, vocabulary] float64: what the sampler reports when it is asked for every token's log probability."""
    rows = [row(params, index, output) for index, output in enumerate(outputs)]
    drawn = sampler(logits.clone(), rows)
    tops = [drawn[index][0].top for index in range(len(rows))]
    return torch.tensor([[top[token] for token in range(VOCAB_SIZE)] for top in tops], dtype=torch.float64)


def distribution(processors, logits, outputs):
    """[rows, vocabulary] float64: log probabilities after transformers' processors."""
    processed = [
        LogitsProcessorList(processors)(torch.tensor([[*PROMPT, *output]]), logits[i : i + 1].clone())
        for i, output in enumerate(outputs)
    ]
    return torch.cat(processed).double().log_softmax(dim=-1)


@pytest.mark.parametrize("outputs", [[[], OUTPUT[:1], OUTPUT]])
@pytest.mark.parametrize(
    ("options", "processors"),
    [
        ({}, []),
        ({"repetition_penalty": 1.4}, [RepetitionPenaltyLogitsProcessor(1.4)]),
        ({"repetition_penalty": 0.7}, [RepetitionPenaltyLogitsProcessor(0.7)]),
        ({"suppress_tokens": [0, 5, 59]}, [SuppressTokensLogitsProcessor([0, 5, 59])]),
        ({"begin_suppress_tokens": [7, 2]}, [SuppressTokensAtBeginLogitsProcessor([7, 2], begin_index=len(PROMPT))]),
        ({"min_tokens": 1}, [MinNewTokensLengthLogitsProcessor(len(PROMPT), 1, EOS)]),
        ({"min_tokens": 6}, [MinNewTokensLengthLogitsProcessor(len(PROMPT), 6, EOS)]),
        ({"min_tokens": 7}, [MinNewTokensLengthLogitsProcessor(len(PROMPT), 7, EOS)]),
        (
            {"min_tokens": 6, "stop_token_ids": [8, 11]},
            [MinNewTokensLengthLogitsProcessor(len(PROMPT), 6, [EOS, 8, 11])],
        ),
        ({"no_repeat_ngram_size": 1}, [NoRepeatNGramLogitsProcessor(1)]),
        ({"no_repeat_ngram_size": 2}, [NoRepeatNGramLogitsProcessor(2)]),
        ({"no_repeat_ngram_size": 3}, [NoRepeatNGramLogitsProcessor(3)]),
        ({"no_repeat_ngram_size": 9}, [NoRepeatNGramLogitsProcessor(9)]),
        *(
            ({"encoder_no_repeat_ngram_size": size}, [EncoderNoRepeatNGramLogitsProcessor(size, READ)])
            for size in (1, 2, 3, 4, 9)
        ),
        (
            {"bad_words_ids": [[7], [5, 11], [17, 5, 12], [0, 13], [30, 14], [1] * 20]},
            [NoBadWordsLogitsProcessor([[7], [5, 11], [17, 5, 12], [0, 13], [30, 14], [1] * 20], EOS)],
        ),
        (
            {"forced_eos_token_id": 9, "max_tokens": len(OUTPUT) + 1},
            [ForcedEOSTokenLogitsProcessor(len(PROMPT) + len(OUTPUT) + 1, [9])],
        ),
        (
            {"forced_eos_token_id": [9, EOS], "max_tokens": 2},
            [ForcedEOSTokenLogitsProcessor(len(PROMPT) + 2, [9, EOS])],
        ),
        *(
            ({"sequence_bias": bias}, [SequenceBiasLogitsProcessor(bias)])
            for bias in (
                [[[7], -2.5], [[5, 11], 3.0], [[17, 5, 12], 9.0], [[11], 1.0], [[1] * 20, 5.0]],
                {(7,): float("-inf"), (5, 11): -1e4},
            )
        ),
        *(
            (
                {"encoder_repetition_penalty": penalty, "repetition_penalty": 1.2},
                [EncoderRepetitionPenaltyLogitsProcessor(penalty, READ), RepetitionPenaltyLogitsProcessor(1.2)],
            )
            for penalty in (0.6, 1.4)
        ),
        *(
            (
                {"exponential_decay_length_penalty": (start, factor)},
                [ExponentialDecayLengthPenalty((start, factor), EOS, len(PROMPT))],
            )
            for start, factor in ((0, 1.3), (2, 0.7), (-1, 2.0), (20, 3.0))
        ),
        (
            {"min_tokens": 6, "remove_invalid_values": True, "exponential_decay_length_penalty": (0, 1.3)},
            [
                MinNewTokensLengthLogitsProcessor(len(PROMPT), 6, EOS),
                InfNanRemoveLogitsProcessor(),
                ExponentialDecayLengthPenalty((0, 1.3), EOS, len(PROMPT)),
            ],
        ),
        ({"forced_bos_token_id": 9}, [ForcedBOSTokenLogitsProcessor(9)]),  # a prompt of two tokens: nothing is forced
        (
            {"repetition_penalty": 1.2, "suppress_tokens": [3], "begin_suppress_tokens": [4], "min_tokens": 3},
            [
                RepetitionPenaltyLogitsProcessor(1.2),
                MinNewTokensLengthLogitsProcessor(len(PROMPT), 3, EOS),
                SuppressTokensLogitsProcessor([3]),
                SuppressTokensAtBeginLogitsProcessor([4], begin_index=len(PROMPT)),
            ],
        ),
    ],
)
def test_processed_logits_are_those_of_transformers(sampler, options, processors, outputs):
    logits = random_logits(len(outputs))
    params = SamplingParams(temperature=0, logprobs=ALL, **options)
    reported = all_logprobs(sampler, logits, params, outputs)
    expected = distribution(processors, logits, outputs)
    torch.testing.assert_close(reported, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("outputs", [[[], OUTPUT[:1], OUTPUT]])
def test_a_forced_bos_token_comes_first_and_begin_suppression_after_it(sampler, outputs):
    logits = random_logits(3)
    params = SamplingParams(temperature=0, logprobs=ALL, forced_bos_token_id=9, begin_suppress_tokens=[7])
    rows = [row(params, index, output, prompt=[2]) for index, output in enumerate(outputs)]
    processors = [ForcedBOSTokenLogitsProcessor(9), SuppressTokensAtBeginLogitsProcessor([7], begin_index=2)]
    drawn = sampler(logits.clone(), rows)
    for index, output in enumerate(outputs):
        expected = LogitsProcessorList(processors)(torch.tensor([[2, *output]]), logits[index : index + 1].clone())
        reported = torch.tensor([[drawn[index][0].top[token] for token in range(VOCAB_SIZE)]])
        torch.testing.assert_close(reported, expected.log_softmax(dim=-1), rtol=1e-5, atol=1e-5)


def test_a_beams_candidates_are_the_top_k_after_processors_on_log_probabilities(sampler):
    """In a beam search transformers processes log probabilities and does not normalise them again."""
    options = {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "suppress_tokens": [11], "min_tokens": 8}
    params = SamplingParams(num_beams=4, logprobs=3, **options)
    outputs = [[], OUTPUT[:3], OUTPUT]
    logits = random_logits(3)
    rows = [row(params, index, output, num_samples=8) for index, output in enumerate(outputs)]
    processors = LogitsProcessorList(
        [
            RepetitionPenaltyLogitsProcessor(1.3),
            NoRepeatNGramLogitsProcessor(2),
            MinNewTokensLengthLogitsProcessor(len(PROMPT), 8, EOS),
            SuppressTokensLogitsProcessor([11]),
        ]
    )
    drawn = sampler(logits.clone(), rows)
    for index, output in enumerate(outputs):
        logprobs = logits[index : index + 1].log_softmax(dim=-1)
        values, tokens = processors(torch.tensor([[*PROMPT, *output]]), logprobs)[0].topk(8)
        assert [candidate.token_id for candidate in drawn[index]] == tokens.tolist()
        assert [candidate.logprob for candidate in drawn[index]] == pytest.approx(values.tolist(), abs=1e-5)
        assert list(drawn[index][0].top) == tokens[:3].tolist()
        assert list(drawn[index][7].top) == [*tokens[:3].tolist(), tokens[7].item()]


def test_a_beam_has_no_forbidden_candidates(sampler):
    params = SamplingParams(num_beams=4, allowed_token_ids=[3, 9])
    (candidates,) = sampler(random_logits(1), [row(params, num_samples=8)]).values()
    assert {candidate.token_id for candidate in candidates} == {3, 9}


@pytest.mark.parametrize("presence", [0.0, 0.8, -1.5])
@pytest.mark.parametrize("frequency", [0.0, 0.3, -0.4])
def test_presence_and_frequency_penalties_by_hand(sampler, presence, frequency):
    outputs = [[], [2], OUTPUT]  # the prompt's tokens do not count
    logits = random_logits(len(outputs))
    params = SamplingParams(temperature=0, logprobs=ALL, presence_penalty=presence, frequency_penalty=frequency)
    expected = logits.double()
    for i, output in enumerate(outputs):
        for token, count in Counter(output).items():
            expected[i, token] -= presence
            for _ in range(count):
                expected[i, token] -= frequency
    reported = all_logprobs(sampler, logits, params, outputs)
    torch.testing.assert_close(reported, expected.log_softmax(dim=-1), rtol=1e-5, atol=1e-5)


def test_logit_bias(sampler):
    logits = random_logits(2)
    expected = logits.double()
    expected[:, 7] += 4.5
    expected[:, 3] -= 100.0
    params = SamplingParams(temperature=0, logprobs=ALL, logit_bias={7: 4.5, 3: -100})
    reported = all_logprobs(sampler, logits, params, [[], OUTPUT])
    torch.testing.assert_close(reported, expected.log_softmax(dim=-1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("suppressed", [(), (7,)])
def test_allowed_token_ids(sampler, suppressed):
    logits = random_logits(2)
    expected = torch.full_like(logits, float("-inf"), dtype=torch.float64)
    for token in {3, 7, 59} - set(suppressed):
        expected[:, token] = logits[:, token].double()
    params = SamplingParams(temperature=0, logprobs=ALL, allowed_token_ids=[59, 7, 3, 7], suppress_tokens=suppressed)
    reported = all_logprobs(sampler, logits, params, [[], OUTPUT])
    torch.testing.assert_close(reported, expected.log_softmax(dim=-1), rtol=1e-5, atol=1e-5)


def test_a_bias_does_not_bring_forbidden_tokens_back(sampler):
    options = {"logit_bias": dict.fromkeys((EOS, 5, 7, 8), 1e6), "suppress_tokens": [5], "min_tokens": 2}
    params = SamplingParams(temperature=0, logprobs=ALL, begin_suppress_tokens=[7], stop_token_ids=[8], **options)
    (reported,) = all_logprobs(sampler, random_logits(1), params, [[]])
    assert torch.isinf(reported).nonzero().flatten().tolist() == [EOS, 5, 7, 8]


def test_end_and_stop_tokens_wait_for_min_tokens(sampler):
    params = SamplingParams(temperature=0, min_tokens=3, stop_token_ids=[8])
    logits = torch.zeros(5, VOCAB_SIZE)
    logits[:, EOS], logits[:, 8], logits[:, 40] = 9.0, 8.0, 7.0
    drawn = sampler(logits, [row(params, length, [1] * length) for length in range(5)])
    assert [drawn[length][0].token_id for length in range(5)] == [40, 40, 40, EOS, EOS]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_greedy_takes_the_argmax(sampler, dtype):
    logits = random_logits(8).to(dtype)
    expected = logits.argmax(dim=-1).tolist()
    drawn = sampler(logits.clone(), [row(SamplingParams(temperature=0), index) for index in range(8)])
    assert [drawn[index][0].token_id for index in range(8)] == expected


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("spread", [3.0, 300.0])
def test_logprobs_are_the_log_softmax(sampler, temperature, spread):
    logits = random_logits(4, spread=spread)
    expected = logits.double().log_softmax(dim=-1)
    # neither temperature nor truncation shows in them
    params = SamplingParams(temperature=temperature, top_k=5 if temperature else None, seed=3, logprobs=4)
    drawn = sampler(logits.clone(), [row(params, index) for index in range(4)])
    for index in range(4):
        (token,) = drawn[index]
        assert token.logprob == pytest.approx(expected[index, token.token_id].item(), rel=1e-5, abs=1e-5)
        best = expected[index].topk(4).indices.tolist()
        assert set(token.top) == {*best, token.token_id}
        assert token.top[token.token_id] == token.logprob
        for other, logprob in token.top.items():
            assert logprob == pytest.approx(expected[index, other].item(), rel=1e-5, abs=1e-5)


def test_an_unlikely_draw_is_reported_beside_the_top_k(sampler):
    logits = torch.zeros(1, VOCAB_SIZE)
    logits[0, 7] = 0.1
    (draws,) = sampler(logits, [row(SamplingParams(temperature=1.0, seed=1, logprobs=1), num_samples=20)]).values()
    assert any(draw.token_id != 7 for draw in draws)
    for draw in draws:
        assert set(draw.top) == {7, draw.token_id}


def test_no_logprobs_unless_asked_for(sampler):
    (draws,) = sampler(random_logits(1), [row(SamplingParams(temperature=0))]).values()
    assert draws[0].top is None
    assert draws[0].logprob < 0


NUM_DRAWS = 4000

truncations = pytest.mark.parametrize(
    ("options", "processors"),
    [
        ({"temperature": 1.0}, []),
        ({"temperature": 0.4}, [TemperatureLogitsWarper(0.4)]),
        ({"temperature": 3.0}, [TemperatureLogitsWarper(3.0)]),
        ({"temperature": 1.0, "top_k": 1}, [TopKLogitsWarper(1)]),
        ({"temperature": 1.0, "top_k": 6}, [TopKLogitsWarper(6)]),
        ({"temperature": 1.0, "top_k": 1000}, []),
        ({"temperature": 1.0, "top_p": 1e-9}, [TopPLogitsWarper(1e-9)]),
        ({"temperature": 1.0, "top_p": 0.5}, [TopPLogitsWarper(0.5)]),
        ({"temperature": 1.0, "top_p": 0.9}, [TopPLogitsWarper(0.9)]),
        ({"temperature": 1.0, "min_p": 0.2}, [MinPLogitsWarper(0.2)]),
        ({"temperature": 1.0, "min_p": 1.0}, [MinPLogitsWarper(1.0)]),
        ({"temperature": 2.0, "top_p": 0.8}, [TemperatureLogitsWarper(2.0), TopPLogitsWarper(0.8)]),
        ({"temperature": 1.0, "top_k": 8, "top_p": 0.8}, [TopKLogitsWarper(8), TopPLogitsWarper(0.8)]),
        ({"temperature": 2.0, "top_p": 0.8, "min_p": 0.1},
         [TemperatureLogitsWarper(2.0), TopPLogitsWarper(0.8), MinPLogitsWarper(0.1)]),
        ({"temperature": 1.5, "top_k": 9, "top_p": 0.9, "min_p": 0.05},
         [TemperatureLogitsWarper(1.5), TopKLogitsWarper(9), TopPLogitsWarper(0.9), MinPLogitsWarper(0.05)]),
        *(({"temperature": 1.0, "typical_p": mass}, [TypicalLogitsWarper(mass)]) for mass in (0.2, 0.6, 0.95)),
        ({"temperature": 1.0, "epsilon_cutoff": 0.03}, [EpsilonLogitsWarper(0.03)]),
        ({"temperature": 1.0, "epsilon_cutoff": 0.9}, [EpsilonLogitsWarper(0.9)]),
        *(({"temperature": 1.0, "eta_cutoff": eta}, [EtaLogitsWarper(eta)]) for eta in (0.9, 0.3, 0.01)),
        *(({"temperature": 1.0, "top_h": share}, [TopHLogitsWarper(share)]) for share in (0.01, 0.4, 0.8)),
        ({"temperature": 1.2, "top_h": 0.9, "top_k": 40, "typical_p": 0.8, "epsilon_cutoff": 0.01, "eta_cutoff": 0.1},
         [TemperatureLogitsWarper(1.2), TopHLogitsWarper(0.9), TopKLogitsWarper(40), TypicalLogitsWarper(0.8),
          EpsilonLogitsWarper(0.01), EtaLogitsWarper(0.1)]),
        ({"temperature": 1.5, "repetition_penalty": 1.5, "suppress_tokens": [1, 2, 3], "top_k": 10},
         [RepetitionPenaltyLogitsProcessor(1.5), SuppressTokensLogitsProcessor([1, 2, 3]),
          TemperatureLogitsWarper(1.5), TopKLogitsWarper(10)]),
    ],
)  # fmt: skip


@truncations
@pytest.mark.parametrize("least", [1, 3])
@pytest.mark.parametrize("spread", [0.3, 1.5, 6.0])
def test_the_cut_offs_are_those_of_transformers(options, processors, least, spread):
    """The same tokens are left. least: transformers' min_tokens_to_keep."""
    logits = random_logits(4, seed=5, spread=spread)
    logits[1:, :40] = float("-inf")  # forbidden by other rules
    kept = truncated(logits / options["temperature"], SamplingParams(**options), least) > float("-inf")
    warpers = [copy(each) for each in processors if type(each).__name__.endswith("Warper")]
    for warper in warpers:
        warper.min_tokens_to_keep = least
        if isinstance(warper, TopKLogitsWarper):
            warper.top_k = max(warper.top_k, least)
    expected = LogitsProcessorList(warpers)(torch.zeros(4, 1, dtype=torch.long), logits.clone()) > float("-inf")
    assert torch.equal(kept, expected)


@pytest.mark.sampled(5)
@truncations
@pytest.mark.parametrize("seed", [0, 11, 2**64 - 1])
def test_draws_follow_the_distribution_of_transformers(sampler, options, processors, seed):
    logits = random_logits(1, seed=5, spread=1.5)
    params = SamplingParams(seed=seed, **options)
    (draws,) = sampler(logits.clone(), [row(params, output=OUTPUT, num_samples=NUM_DRAWS)]).values()
    counts = torch.bincount(torch.tensor([draw.token_id for draw in draws]), minlength=VOCAB_SIZE).double()
    expected = distribution(processors, logits, [OUTPUT])[0].exp() * NUM_DRAWS
    assert counts[expected == 0].sum() == 0
    common = expected >= 10
    assert counts[common].all()
    observed, predicted = counts[common].tolist(), expected[common].tolist()
    rest = NUM_DRAWS - sum(predicted)
    if rest >= 10:
        observed.append(NUM_DRAWS - sum(observed))
        predicted.append(rest)
    if len(observed) > 1:
        predicted = [value * sum(observed) / sum(predicted) for value in predicted]
        assert chisquare(observed, predicted).pvalue > 1e-3


def test_draws_of_one_sample_over_its_positions_follow_the_distribution(sampler):
    logits = random_logits(1, seed=6, spread=1.0).expand(NUM_DRAWS, -1).clone()
    params = SamplingParams(temperature=1.0, seed=4)
    drawn = sampler(logits.clone(), [row(params, position, [1] * position) for position in range(NUM_DRAWS)])
    tokens = torch.tensor([drawn[position][0].token_id for position in range(NUM_DRAWS)])
    expected = logits[0].double().softmax(dim=-1) * NUM_DRAWS
    common = expected >= 10
    counts = torch.bincount(tokens, minlength=VOCAB_SIZE).double()
    observed = [*counts[common].tolist(), counts[~common].sum().item()]
    predicted = [*expected[common].tolist(), expected[~common].sum().item()]
    assert chisquare(observed, predicted).pvalue > 1e-3


def test_a_tiny_temperature_is_nearly_greedy(sampler):
    logits = random_logits(6)
    for temperature in (1e-3, 1e-40, 5e-324):
        params = SamplingParams(temperature=temperature, seed=1)
        drawn = sampler(logits.clone(), [row(params, index) for index in range(6)])
        assert [drawn[index][0].token_id for index in range(6)] == logits.argmax(dim=-1).tolist()


def test_equally_likely_tokens_survive_top_k_together(sampler):
    logits = torch.zeros(1, VOCAB_SIZE)
    logits[0, [4, 5, 6]] = 3.0
    params = SamplingParams(temperature=1.0, top_k=2, seed=0)
    (draws,) = sampler(logits, [row(params, num_samples=100)]).values()
    assert {draw.token_id for draw in draws} == {4, 5, 6}


MIXED = [
    (SamplingParams(temperature=0), []),
    (SamplingParams(temperature=0), OUTPUT),
    (SamplingParams(temperature=1.0, seed=1), []),
    (SamplingParams(temperature=1.0, seed=2), []),
    (SamplingParams(temperature=1.0, seed=2), OUTPUT),
    (SamplingParams(temperature=0.8, top_k=9, seed=2), OUTPUT),
    (SamplingParams(temperature=1.3, top_p=0.8, min_p=0.01, seed=3, logprobs=3), OUTPUT),
    (SamplingParams(temperature=1.3, top_p=0.8, min_p=0.01, seed=4, logprobs=3), OUTPUT[:2]),
    (SamplingParams(temperature=1.3, typical_p=0.8, eta_cutoff=0.01, seed=4), OUTPUT[:2]),
    (SamplingParams(temperature=1.3, top_h=0.7, epsilon_cutoff=0.01, seed=5), OUTPUT),
    (SamplingParams(temperature=0, repetition_penalty=1.7, logprobs=2), OUTPUT),
    (SamplingParams(temperature=0, repetition_penalty=1.7, logprobs=2), []),
    (SamplingParams(temperature=1.0, presence_penalty=0.5, frequency_penalty=0.5, seed=5), OUTPUT),
    (SamplingParams(temperature=0, logit_bias={4: 20.0}, suppress_tokens=[9]), OUTPUT),
    (SamplingParams(temperature=0, min_tokens=3, stop_token_ids=[8], begin_suppress_tokens=[1]), OUTPUT[:2]),
    (SamplingParams(temperature=1.0, allowed_token_ids=[7, 8, 9, 10], seed=6, n=3), []),
]


@pytest.mark.parametrize("order_seed", range(5))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_is_the_same_alone_and_in_any_batch(sampler, order_seed, dtype):
    logits = random_logits(len(MIXED), seed=9).to(dtype)
    rows = [row(params, index, output, num_samples=params.n) for index, (params, output) in enumerate(MIXED)]
    alone = {index: sampler(logits[index : index + 1].clone(), [rows[index]])[index] for index in range(len(rows))}
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(order_seed))
    together = sampler(logits[order].clone(), [rows[index] for index in order.tolist()])
    assert together.keys() == alone.keys()
    for index, tokens in alone.items():
        for one, other in zip(tokens, together[index], strict=True):
            assert one.token_id == other.token_id
            assert one.logprob == pytest.approx(other.logprob, rel=1e-6, abs=1e-6)
            assert (one.top is None) == (other.top is None)
            if one.top is not None:
                assert one.top == pytest.approx(other.top, rel=1e-6, abs=1e-6)


def draws_over(sampler, params, **place):
    """The tokens drawn from one flat distribution at 20 positions."""
    logits = torch.zeros(20, VOCAB_SIZE)
    drawn = sampler(logits, [row(params, length, [1] * length, **place) for length in range(20)])
    return [[token.token_id for token in drawn[length]] for length in range(20)]


def test_the_same_seed_draws_the_same():
    params = SamplingParams(temperature=1.0, seed=7)
    assert draws_over(new_sampler(), params) == draws_over(new_sampler(), params)


def test_other_seeds_positions_and_samples_draw_otherwise(sampler):
    seeds = [0, 1, 2, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1]
    by_seed = [draws_over(sampler, SamplingParams(temperature=1.0, seed=seed)) for seed in seeds]
    by_sample = [draws_over(sampler, SamplingParams(temperature=1.0, seed=0), sample_index=i) for i in range(1, 5)]
    different = {str(draws) for draws in (*by_seed, *by_sample)}
    assert len(different) == len(seeds) + 4
    assert all(len({tokens[0] for tokens in draws}) > 5 for draws in by_seed)


def test_one_sample_does_not_depend_on_how_many_there_are(sampler):
    params = SamplingParams(temperature=1.0, seed=7)
    five = draws_over(sampler, params, num_samples=5)
    assert len({tuple(tokens[sample] for tokens in five) for sample in range(5)}) == 5
    for n in (1, 3):
        assert draws_over(sampler, params, num_samples=n) == [tokens[:n] for tokens in five]
    for sample in range(5):  # forked, and drawing by itself
        alone = draws_over(sampler, params, sample_index=sample)
        assert alone == [[tokens[sample]] for tokens in five]


def test_more_token_lists_than_the_sampler_keeps(sampler):
    for bias in range(1100):
        (draws,) = sampler(
            torch.zeros(1, VOCAB_SIZE), [row(SamplingParams(temperature=0, suppress_tokens=range(bias % 59)))]
        ).values()
        assert draws[0].token_id == bias % 59


def test_rows_are_handled_as_one_whenever_they_end(sampler):
    def first_token_only(logits, rows):
        calls.append(len(rows))
        logits[:, 1:] = float("-inf")

    calls = []
    alike = SamplingParams(temperature=0.7, logits_processors=(first_token_only,))
    others = [
        {"max_tokens": 5},
        {"max_tokens": 9, "stop": ("end",), "seed": 3},
        {"ignore_eos": True, "stop_token_ids": (7,)},
        {"max_tokens": 5, "skip_special_tokens": False, "detokenize": False},
    ]
    rows = [row(dataclasses.replace(alike, **{"seed": 1} | other), index) for index, other in enumerate(others)]
    assert all(token.token_id == 0 for (token,) in sampler(random_logits(4), rows).values())
    assert calls == [4]


@pytest.mark.parametrize(
    "other",
    [
        *({"temperature": 0.5}, {"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.1}, {"min_tokens": 2}, {"logprobs": 2}),
        *({"repetition_penalty": 1.2}, {"presence_penalty": 0.5}, {"frequency_penalty": 0.5}, {"logit_bias": {4: 1.0}}),
        *({"no_repeat_ngram_size": 2}, {"encoder_no_repeat_ngram_size": 2}, {"bad_words_ids": [[4]]}),
        *({"allowed_token_ids": [4, 5]}, {"suppress_tokens": [4]}, {"begin_suppress_tokens": [4]}),
        {"keywords": [[4, 5]]},
        *({"forced_bos_token_id": 4}, {"forced_eos_token_id": 4}),
        *({"sequence_bias": {(4, 5): 1.0}}, {"encoder_repetition_penalty": 1.2}, {"remove_invalid_values": True}),
        *({"renormalize_logits": True}, {"exponential_decay_length_penalty": (1, 1.2)}),
    ],
    ids=str,
)
def test_what_chooses_a_token_parts_rows(other):
    """And so does what some of it depends on: when the output may end, and when it is made to."""
    one = SamplingParams(temperature=0.7, max_tokens=8)
    two = dataclasses.replace(one, **other)
    assert one.sampling_key != two.sampling_key
    later = dataclasses.replace(two, max_tokens=9)
    assert (later.sampling_key == two.sampling_key) == ("forced_eos_token_id" not in other)
    ends = dataclasses.replace(two, stop_token_ids=(5,))
    depends = {"min_tokens", "exponential_decay_length_penalty"}
    assert (ends.sampling_key == two.sampling_key) == depends.isdisjoint(other)


def test_invalid_logits_are_replaced_as_in_transformers(sampler):
    logits = random_logits(1)
    logits[0, [3, 9, 20]] = torch.tensor([float("nan"), float("inf"), float("-inf")])
    for params in (SamplingParams(temperature=0.0), SamplingParams(temperature=1.0, seed=2)):
        ((token,),) = sampler(logits.clone(), [row(dataclasses.replace(params, remove_invalid_values=True))]).values()
        assert (token.token_id, token.logprob) == (9, 0.0)


def test_a_decay_that_overflows_chooses_the_end(sampler):
    params = SamplingParams(temperature=0.0, exponential_decay_length_penalty=(0, 1e6))
    ((token,),) = sampler(random_logits(1), [row(params, output=[5] * 200)]).values()
    assert (token.token_id, token.logprob) == (EOS, 0.0)


def test_tokens_that_the_decoder_has_not_are_not_looked_for(sampler):
    """Of an encoder with a larger vocabulary, or a tokenizer with more words."""
    params = SamplingParams(
        temperature=0.0,
        encoder_no_repeat_ngram_size=1,
        encoder_repetition_penalty=0.5,
        bad_words_ids=[[5], [VOCAB_SIZE]],
    )
    data = SequenceData(PROMPT, [], 0, [VOCAB_SIZE + 3, 7])
    logits = random_logits(1)
    expected = logits.clone()
    logits[0, [5, 7]] = 100.0
    expected[0, [5, 7]] = float("-inf")
    ((token,),) = sampler(logits, [row(params)._replace(data=data)]).values()
    assert token.token_id == expected.argmax()
