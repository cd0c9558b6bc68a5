"""Drafts change the number of steps, and nothing else."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest
from drafted import (
    CHECKPOINTS,
    GREEDY,
    HERE,
    KINDS,
    WORDS,
    assert_nothing_is_held,
    assert_same,
    drafted,
    refuse_wrong_tokens,
)
from windowed_bart import put_windows

from transept import Engine, ParameterError, RequestOutput, SamplingParams
from transept.core.scheduling.draft_lengths import DraftLengths
from transept.core.scheduling.drafter import DraftText, TextDrafter


def with_drafts(params: list[SamplingParams], outputs: list[RequestOutput], engine: Engine) -> list[SamplingParams]:
    rng, size = random.Random(len(params)), engine.shape.vocab_size
    return [drafted(each, output, rng, size) for each, output in zip(params, outputs, strict=True)]


@pytest.fixture(scope="module", params=["bart-g2p", "t5-g2p"])
def plain(request: pytest.FixtureRequest) -> tuple[Engine, list[str], list[SamplingParams], list[RequestOutput]]:
    """An engine, requests of all kinds, and their outputs without drafts."""
    engine = Engine(CHECKPOINTS / request.param, **HERE)
    words, params = WORDS * 4, [*(KINDS * 3)]
    return engine, words, params, engine.generate(words, params, progress=False)


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


@pytest.mark.parametrize("option", [{"draft": "lookup"}, {"draft_tokens": [5]}, {"draft_length": 3}])
def test_a_beam_search_refuses_drafts(option: dict[str, Any]) -> None:
    message = f"a beam search uses no {next(iter(option))}; leave it out, or set num_beams=1"
    with pytest.raises(ParameterError, match=message):
        SamplingParams(num_beams=2, **option)


@pytest.mark.parametrize("given", [5, b"ox", {"a": 1}])
def test_a_draft_is_a_text_or_a_list(given: Any) -> None:
    with pytest.raises(ParameterError, match=r"draft_tokens must be a text or a list of token ids, not "):
        SamplingParams(draft_tokens=given)


def test_a_length_needs_a_draft(plain: Any) -> None:
    engine = plain[0]
    with pytest.raises(ParameterError, match=r"draft_length=3 has no draft to bound; set draft='lookup' or draft_tok"):
        engine.generate("ox", SamplingParams(temperature=0.0, draft_length=3))
    engine.generate("ox", SamplingParams(temperature=0.0, draft_tokens=[], draft_length=3, max_tokens=2))


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
    drafter = TextDrafter(DraftText(text, is_expected))
    for end in range(len(output) + 1):
        grown = drafter.propose([0], output[:end], 3)
    assert grown == proposed


def test_lengths_follow_acceptance_and_times() -> None:
    """If a row costs a tenth of a step, good drafts are long, and bad ones rest. Dear rows are not tried."""
    lengths, text = DraftLengths(), DraftText(range(100), is_expected=True)
    good, bad = TextDrafter(text), TextDrafter(text)
    assert lengths.choose([good], [8], 1, 32) == [0]  # no time is known
    lengths.times(1).ended(0, 0, 1.0)
    lengths.times(1).ended(4, 0, 1.4)
    for _ in range(40):
        lengths.judged(good, good.strength, 8, 8)
        lengths.judged(bad, bad.strength, 1, 0)
    assert lengths.choose([good], [8], 1, 32) == [8]
    assert lengths.choose([bad], [8], 1, 32) == [0]
    assert bad.num_resting > 0
    lengths.times(32).ended(0, 0, 1.0)
    lengths.times(32).ended(8, 0, 1.4)
    assert lengths.choose([good, bad], [8, 8], 32, 32) == [0, 0]
