"""Drafts change the number of steps, and nothing else."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from drafted import drafted
from torch import Tensor
from windowed_bart import put_windows

from transept import Engine, ParameterError, RequestOutput, SamplingParams
from transept.core.scheduling.draft_lengths import DraftLengths
from transept.core.scheduling.drafter import Drafter, DraftText
from transept.core.scheduling.step import SequenceData

CHECKPOINTS = Path(__file__).parents[1] / "data" / "cmudict"
HERE = {"device": "cuda" if torch.cuda.is_available() else "cpu", "dtype": "float32", "kv_cache_bytes": 1 << 26}
WORDS = ["grapheme", "ox", "transept", "a", "engine", "nave", "crossing", "choir", "apse", "vault", "tower", "it"]
GREEDY = SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)


def no_doubles(logits: Tensor, rows: Sequence[SequenceData]) -> None:
    """A processor that reads the last token of each row."""
    for index, row in enumerate(rows):
        logits[index, row.token_ids[-1]] = float("-inf")


def refuse_wrong_tokens(logits: Tensor, rows: Sequence[SequenceData]) -> None:
    """A processor that raises for a token that it never allows."""
    for row in rows:
        if 7 in row.output_token_ids:
            raise ValueError("7 cannot be here")
    logits[:, 7] = float("-inf")


KINDS = [
    GREEDY,
    SamplingParams(temperature=0.0, max_tokens=24),
    SamplingParams(temperature=0.0, max_tokens=1),
    SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True, min_tokens=12, forced_eos_token_id=2),
    SamplingParams(temperature=0.0, max_tokens=19, logprobs=3, begin_suppress_tokens=[5], suppress_tokens=[9]),
    SamplingParams(temperature=0.0, max_tokens=16, ignore_eos=True, repetition_penalty=1.5, frequency_penalty=0.5),
    SamplingParams(temperature=0.0, max_tokens=16, ignore_eos=True, no_repeat_ngram_size=2, logit_bias={11: 1.0}),
    SamplingParams(temperature=0.0, max_tokens=20, ignore_eos=True, stop=["AH", "K S"], min_tokens=3),
    SamplingParams(temperature=0.0, max_tokens=20, stop_token_ids=[12], allowed_token_ids=[*range(2, 40)]),
    SamplingParams(temperature=0.0, max_tokens=14, ignore_eos=True, logits_processors=[no_doubles]),
    SamplingParams(temperature=0.0, max_tokens=14, ignore_eos=True, logits_processors=[refuse_wrong_tokens]),
    SamplingParams(temperature=1.0, seed=3, max_tokens=20, ignore_eos=True, logprobs=2),
    SamplingParams(temperature=0.7, seed=4, max_tokens=12, n=3, top_k=10, ignore_eos=True),
    SamplingParams(temperature=1.0, seed=4, max_tokens=9, n=2, keywords=[[11, 12]]),
    SamplingParams(temperature=0.0, max_tokens=9, keywords=[[11, 12]]),  # a keyword search, without drafts
    SamplingParams(num_beams=3, max_tokens=9),
]


def results(output: RequestOutput) -> list[Any]:
    return [
        (each.token_ids, each.text, each.finish_reason, each.stop_reason, each.logprobs and [*map(set, each.logprobs)])
        for each in output.outputs
    ]


def assert_same(ours: list[RequestOutput], theirs: list[RequestOutput]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert one.error is None
        assert results(one) == results(other)
        for mine, expected in zip(one.outputs, other.outputs, strict=True):
            assert mine.cumulative_logprob == pytest.approx(expected.cumulative_logprob, abs=1e-3)


def with_drafts(params: list[SamplingParams], outputs: list[RequestOutput], engine: Engine) -> list[SamplingParams]:
    rng, size = random.Random(len(params)), engine.shape.vocab_size
    return [drafted(each, output, rng, size) for each, output in zip(params, outputs, strict=True)]


@pytest.fixture(scope="module", params=["bart-g2p", "t5-g2p"])
def plain(request: pytest.FixtureRequest) -> tuple[Engine, list[str], list[SamplingParams], list[RequestOutput]]:
    """An engine, requests of all kinds, and their outputs without drafts."""
    engine = Engine(CHECKPOINTS / request.param, **HERE)
    words, params = WORDS * 4, [*(KINDS * 3)]
    return engine, words, params, engine.generate(words, params, progress=False)


def assert_nothing_is_held(engine: Engine) -> None:
    manager = engine.block_manager
    manager.check_integrity()
    assert manager.num_free_device_blocks == manager.num_device_blocks


def test_a_batch_of_all_kinds(plain: Any) -> None:
    engine, words, params, expected = plain
    statistics = engine.core.statistics
    assert_same(engine.generate(words, with_drafts(params, expected, engine), progress=False), expected)
    assert 50 < statistics.num_accepted_tokens < statistics.num_draft_tokens
    assert_nothing_is_held(engine)


@pytest.mark.parametrize("num_stages", [1, 3], ids=["look ahead", "three stages"])
def test_steps_in_flight(plain: Any, num_stages: int) -> None:
    engine, words, params, expected = plain
    ahead = Engine(engine.config.model, **HERE, max_num_seqs=9)
    ahead.executor.capacity = dataclasses.replace(ahead.executor.capacity, asynchronous=True, num_stages=num_stages)
    assert_same(ahead.generate(words, with_drafts(params, expected, engine), progress=False), expected)
    assert_nothing_is_held(ahead)


@pytest.mark.parametrize("swap", [False, True], ids=["recompute", "swap"])
def test_preempted_requests(plain: Any, swap: bool) -> None:
    """Drafts take blocks that are free, and preempt no request."""
    engine, words, params, expected = plain
    manager = engine.block_manager
    slot = engine.config.kv_cache_bytes // (manager.num_device_blocks * manager.block_size)
    room = 24 * 4 * slot
    sizes = {**HERE, "block_size": 4, "max_num_seqs": 8, "kv_cache_bytes": room, "swap_bytes": room if swap else 0}
    counts = []
    for asked in (params, with_drafts(params, expected, engine)):
        small, preempted = Engine(engine.config.model, **sizes), 0
        for index, request in enumerate(zip(words, asked, strict=True)):
            small.add_request(str(index), *request)
        finished: dict[str, RequestOutput] = {}
        while small.has_unfinished_requests:
            finished |= {output.request_id: output for output in small.step() if output.finished}
            small.block_manager.check_integrity()
            preempted += any(group.seqs[0].output_token_ids for group in small.scheduler.queue)
        assert_same([finished[str(index)] for index in range(len(words))], expected)
        assert_nothing_is_held(small)
        counts.append(preempted)
    assert all(counts)


def test_windows_free_blocks_behind_a_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    put_windows(monkeypatch, 6, 6)
    engine = Engine(CHECKPOINTS / "bart-g2p", **HERE, block_size=2)
    expected = engine.generate(WORDS, GREEDY, progress=False)
    asked = with_drafts([GREEDY] * len(WORDS), expected, engine)
    assert_same(engine.generate(WORDS, asked, progress=False), expected)
    assert engine.core.statistics.num_accepted_tokens
    assert_nothing_is_held(engine)


def test_a_right_draft_saves_its_length_in_steps(plain: Any) -> None:
    engine = plain[0]
    (expected,) = engine.generate(WORDS[0], GREEDY)
    before, statistics = dataclasses.replace(engine.core.statistics), engine.core.statistics
    tokens = expected.outputs[0].token_ids
    (ours,) = engine.generate(WORDS[0], dataclasses.replace(GREEDY, draft_tokens=tokens, draft_length=4))
    assert_same([ours], [expected])
    # The prompt's step draws one token, each further one five; the 24th is the last.
    assert statistics.num_steps - before.num_steps == 1 + 5
    accepted = statistics.num_accepted_tokens - before.num_accepted_tokens
    assert accepted == statistics.num_draft_tokens - before.num_draft_tokens == 24 - 6
    assert statistics.num_decoder_tokens - before.num_decoder_tokens == 24


def test_a_long_prompt_is_computed_with_the_draft(plain: Any) -> None:
    engine, given = plain[0], {"encoder_prompt": WORDS[0], "decoder_prompt": {"prompt_tokens": [2, 0, *range(4, 14)]}}
    (expected,) = engine.generate(given, GREEDY)
    before, tokens = engine.core.statistics.num_steps, expected.outputs[0].token_ids
    (ours,) = engine.generate(given, dataclasses.replace(GREEDY, draft_tokens=tokens, draft_length=7))
    assert_same([ours], [expected])
    assert engine.core.statistics.num_steps - before == 3  # eight tokens in each


def test_a_failing_processor_fails_alone_with_its_draft(plain: Any) -> None:
    """It sees a token that only a draft has, and is called again without it."""
    engine = plain[0]
    params = SamplingParams(temperature=0.0, max_tokens=9, ignore_eos=True, logits_processors=[refuse_wrong_tokens])
    expected = engine.generate(WORDS[:3], params)
    wrong = dataclasses.replace(params, draft_tokens=[7] * 9, draft_length=3)
    assert_same(engine.generate(WORDS[:3], [wrong, params, wrong]), expected)


def test_texts_are_drafts_too(plain: Any) -> None:
    engine = plain[0]
    (expected,) = engine.generate(WORDS[0], SamplingParams(temperature=0.0, max_tokens=24))
    before = engine.core.statistics.num_accepted_tokens
    draft = SamplingParams(temperature=0.0, max_tokens=24, draft_tokens=expected.outputs[0].text, draft_length=4)
    assert_same(engine.generate(WORDS[0], draft), [expected])
    assert engine.core.statistics.num_accepted_tokens > before


def test_a_beam_search_refuses_drafts() -> None:
    with pytest.raises(ParameterError, match="a beam search uses no draft; leave it out, or set num_beams=1"):
        SamplingParams(num_beams=2, draft="lookup")


def test_unknown_tokens_are_refused(plain: Any) -> None:
    with pytest.raises(ParameterError, match="draft_tokens holds 99999; this model's token ids end at"):
        plain[0].generate("ox", SamplingParams(draft_tokens=[99_999]))


@pytest.mark.parametrize(
    ("text", "is_expected", "output", "proposed"),
    [
        ([1, 2, 3, 4, 5, 6], True, [], [1, 2, 3]),
        ([1, 2, 3, 4, 5, 6], True, [1, 2], [3, 4, 5]),
        ([1, 2, 3, 4, 5, 6], True, [1, 9], [3, 4, 5]),  # another token in place of 2
        ([1, 2, 3, 4, 5, 6], True, [1, 9, 2], [3, 4, 5]),  # one before it
        ([1, 2, 3, 4, 5, 6], True, [1, 4], [5, 6]),  # two are left out
        ([1, 2, 3, 4, 5, 6], True, [1, 2, 3, 4, 5, 6], []),
        ([8, 1, 2, 3, 9, 1, 2, 4, 5], False, [7, 9, 1, 2], [4, 5]),  # the longest match
        ([8, 1, 2, 3, 9, 1, 2, 4, 5], False, [7, 1], []),  # one token may be chance
        ([8, 1, 2, 3], False, [5, 6, 7, 4, 5, 6, 7], [4, 5, 6]),  # the output repeats itself
    ],
)
def test_proposals(text: list[int], is_expected: bool, output: list[int], proposed: list[int]) -> None:
    """The output grows token by token."""
    drafter = Drafter(DraftText(text, is_expected))
    for end in range(len(output) + 1):
        grown = drafter.propose([0], output[:end], 3)
    assert grown == proposed


def test_lengths_follow_acceptance_and_times() -> None:
    """If a row costs a tenth of a step, good drafts are long, and bad ones rest. Dear rows are not tried."""
    lengths, text = DraftLengths(), DraftText(range(100), is_expected=True)
    good, bad = Drafter(text), Drafter(text)
    assert lengths.choose([good], [8], 1) == [0]  # no time is known
    lengths.times(1).ended(0, 1.0)
    lengths.times(1).ended(4, 1.4)
    for _ in range(40):
        lengths.judged(good, good.strength, 8, 0)
        lengths.judged(bad, bad.strength, 0, 1)
    assert lengths.choose([good], [8], 1) == [8]
    assert lengths.choose([bad], [8], 1) == [0]
    assert bad.num_resting > 0
    lengths.times(32).ended(0, 1.0)
    lengths.times(32).ended(8, 1.4)
    assert lengths.choose([good, bad], [8, 8], 32) == [0, 0]
