"""Steps issued before the last one's tokens are known give what steps one after the other give.

A GPU computes beside the host, and stages of a pipeline beside each other; a CPU does neither. What is decided is the
same, so an engine on a CPU is told that it does.
"""

import dataclasses
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from transept import Engine, RequestOutput, SamplingParams
from transept.core.execution.model_runner import IssuedStep

CHECKPOINTS = Path(__file__).parents[1] / "data" / "cmudict"
WORDS = ["grapheme", "ox", "transept", "a", "engine", "nave", "crossing", "choir", "apse", "vault", "tower", "it"]
HERE = {"device": "cuda" if torch.cuda.is_available() else "cpu", "dtype": "float32", "kv_cache_bytes": 1 << 26}
GREEDY = SamplingParams(temperature=0.0, max_tokens=20)
KINDS = [
    GREEDY,
    SamplingParams(temperature=0.0, max_tokens=1),
    SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True, min_tokens=12),
    SamplingParams(temperature=0.0, max_tokens=9, logprobs=3, begin_suppress_tokens=[5], forced_eos_token_id=2),
    SamplingParams(temperature=1.0, seed=3, max_tokens=9),
    SamplingParams(temperature=0.7, seed=4, max_tokens=9, n=3, top_k=10),
    SamplingParams(num_beams=3, max_tokens=9),
    SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True, repetition_penalty=1.5),
    SamplingParams(temperature=0.0, max_tokens=15, stop=["AH"]),
]


def engine_with(asynchronous: bool, name: str = "bart-g2p", num_stages: int = 1, **options: Any) -> Engine:
    engine = Engine(CHECKPOINTS / name, **{**HERE, **options})
    told = dataclasses.replace(engine.executor.capacity, asynchronous=asynchronous, num_stages=num_stages)
    engine.executor.capacity = told
    return engine


@pytest.fixture(params=[1, 3], ids=["look ahead", "three stages"])
def num_stages(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture(scope="module")
def in_turn() -> Engine:
    return engine_with(False)


def results(output: RequestOutput) -> list[tuple[list[int], str | None, Any, Any]]:
    return [(each.token_ids, each.text, each.finish_reason, each.logprobs) for each in output.outputs]


def run_to_the_end(engine: Engine) -> dict[str, RequestOutput]:
    finished: dict[str, RequestOutput] = {}
    while engine.has_unfinished_requests:
        for output in engine.step():
            assert output.request_id not in finished
            assert all(token >= 0 for each in output.outputs for token in each.token_ids)
            if output.finished:
                finished[output.request_id] = output
        engine.block_manager.check_integrity()
    return finished


def iter_steps(engine: Engine) -> Iterator[RequestOutput]:
    while engine.has_unfinished_requests:
        yield from engine.step()


def assert_nothing_is_held(engine: Engine) -> None:
    manager = engine.block_manager
    manager.check_integrity()
    assert manager.num_free_device_blocks == manager.num_device_blocks
    assert not engine.core.in_flight


def test_the_next_step_is_issued_while_one_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_with(True)
    issue, rows = engine.executor.issue, []
    monkeypatch.setattr(engine.executor, "issue", lambda step: rows.append(len(step.decodes)) or issue(step))
    engine.add_request("word", WORDS[0], SamplingParams(temperature=0.0, max_tokens=5, ignore_eos=True))
    for length in range(1, 6):
        (output,) = engine.step()
        assert len(output.outputs[0].token_ids) == length
        assert bool(engine.core.in_flight) == (length < 5)
    assert output.finished
    assert sum(rows) == 5  # nothing is computed after a token that is known to be the last one
    assert_nothing_is_held(engine)


def test_stages_of_a_pipeline_share_the_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once all have begun, each step has as many of them, and no request is in two."""
    engine = engine_with(True, num_stages=3)
    issue, issued = engine.executor.issue, []
    monkeypatch.setattr(engine.executor, "issue", lambda step: issued.append(step.decodes) or issue(step))
    for index, word in enumerate(WORDS):
        engine.add_request(word, word, SamplingParams(temperature=0.0, max_tokens=3 + index, ignore_eos=True))
    engine.step()
    assert [len(step) for step in issued] == [12]
    while engine.has_unfinished_requests:
        engine.step()
        under_way = [each.request_id for step in engine.core.in_flight for each in step.groups]
        assert len(under_way) == len({*under_way})
    assert [len(step) for step in issued[1:7]] == [4] * 6
    assert_nothing_is_held(engine)


@pytest.mark.parametrize("max_num_seqs", [3, 64])
@pytest.mark.parametrize("name", ["bart-g2p", "t5-g2p"])
def test_requests_of_every_kind_share_steps(name: str, max_num_seqs: int, num_stages: int) -> None:
    """Some fork, search or read their tokens, for which all wait; the others go on."""
    rng = random.Random(max_num_seqs)
    params = [rng.choice(KINDS) for _ in WORDS] + [GREEDY] * len(WORDS)
    expected = engine_with(False, name).generate(WORDS * 2, params, progress=False)
    engine = engine_with(True, name, num_stages, max_num_seqs=max_num_seqs)
    ours = engine.generate(WORDS * 2, params, progress=False)
    for one, other in zip(ours, expected, strict=True):
        assert [each.token_ids for each in one.outputs] == [each.token_ids for each in other.outputs]
        assert [each.text for each in one.outputs] == [each.text for each in other.outputs]
        assert [each.finish_reason for each in one.outputs] == [each.finish_reason for each in other.outputs]
        for mine, theirs in zip(one.outputs, other.outputs, strict=True):
            assert mine.cumulative_logprob == pytest.approx(theirs.cumulative_logprob, abs=1e-4)
    assert_nothing_is_held(engine)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_request_of_each_kind_beside_greedy_ones(kind: SamplingParams, in_turn: Engine) -> None:
    params = [kind, GREEDY, kind, GREEDY]
    engine = engine_with(True)
    ours = engine.generate(WORDS[:4], params, progress=False)
    expected = in_turn.generate(WORDS[:4], params, progress=False)
    for one, other in zip(ours, expected, strict=True):
        for mine, theirs in zip(results(one), results(other), strict=True):
            assert mine[:3] == theirs[:3]
    assert_nothing_is_held(engine)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("swap", [False, True], ids=["recompute", "swap"])
def test_arrivals_aborts_and_preemption(swap: bool, in_turn: Engine, num_stages: int) -> None:
    rng = random.Random(swap)
    manager = in_turn.block_manager
    slot = in_turn.config.kv_cache_bytes // (manager.num_device_blocks * manager.block_size)
    room = 30 * 4 * slot
    sizes = {"block_size": 4, "max_num_seqs": 6, "kv_cache_bytes": room, "swap_bytes": room if swap else 0}
    small = engine_with(True, num_stages=num_stages, **sizes)
    params = [GREEDY, *(SamplingParams(temperature=0.0, max_tokens=n, ignore_eos=True) for n in (2, 17, 24))]
    waiting = [(str(index), rng.choice(WORDS), rng.choice(params)) for index in range(120)]
    asked = {request_id: (word, own) for request_id, word, own in waiting}
    finished: dict[str, RequestOutput] = {}
    aborted: set[str] = set()
    ahead = preempted = 0
    while waiting or small.has_unfinished_requests:
        for _ in range(min(rng.choice((0, 0, 1, 3)), len(waiting))):
            small.add_request(*waiting.pop())
        live = [*small.scheduler._groups]
        if live and rng.random() < 0.1:
            aborted.add(rng.choice(live))
            for request_id in aborted:  # once more is no error
                small.abort_request(request_id)
        for output in small.step():
            assert output.request_id not in finished
            assert output.request_id not in aborted
            if output.finished:
                finished[output.request_id] = output
        small.block_manager.check_integrity()
        ahead += bool(small.core.in_flight)
        preempted += any(group.seqs[0].output_token_ids for group in small.scheduler.queue)
    assert finished.keys() | aborted == asked.keys()
    assert ahead > 20
    assert preempted > 5
    expected = {key: in_turn.generate(*key, progress=False)[0] for key in set(asked.values())}
    for request_id, output in finished.items():
        assert results(output) == results(expected[asked[request_id]])
    assert_nothing_is_held(small)


def test_a_request_that_is_aborted_while_it_is_computed(in_turn: Engine, num_stages: int) -> None:
    engine = engine_with(True, num_stages=num_stages)
    for name, word in zip("abc", WORDS, strict=False):
        engine.add_request(name, word, GREEDY)
    engine.step()
    engine.abort_request("b")
    engine.add_request("b", WORDS[3], GREEDY)  # its name and its blocks can be had at once
    finished = run_to_the_end(engine)
    expected = in_turn.generate([WORDS[0], WORDS[3], WORDS[2]], GREEDY, progress=False)
    assert [results(finished[name]) for name in "abc"] == [results(output) for output in expected]
    engine.add_request("d", WORDS[4], GREEDY)
    engine.step()
    engine.abort_request("d")
    assert not engine.has_unfinished_requests
    assert results(engine.generate(WORDS[0], GREEDY)[0]) == results(expected[0])
    assert_nothing_is_held(engine)


def test_a_new_request_that_fails_takes_nobody_with_it(
    in_turn: Engine, monkeypatch: pytest.MonkeyPatch, num_stages: int
) -> None:
    engine = engine_with(True, num_stages=num_stages)
    model = engine.executor.worker.runner.model
    encode = model.encode
    engine.add_request("good", WORDS[0], GREEDY)
    engine.step()

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("the encoder fails")

    monkeypatch.setattr(model, "encode", fail)
    engine.add_request("bad", WORDS[1], GREEDY)
    failed = next(output for output in iter_steps(engine) if output.error is not None)
    assert (failed.request_id, str(failed.error.__cause__)) == ("bad", "the encoder fails")
    monkeypatch.setattr(model, "encode", encode)
    finished = run_to_the_end(engine)
    assert [*finished] == ["good"]
    assert results(finished["good"]) == results(in_turn.generate(WORDS[0], GREEDY)[0])
    assert_nothing_is_held(engine)


def test_a_step_whose_tokens_cannot_be_had_is_computed_again(in_turn: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = engine_with(True)
    engine.add_request("word", WORDS[0], GREEDY)
    engine.step()
    engine.add_request("new", WORDS[1], GREEDY)
    collect, calls = IssuedStep.collect, iter(range(10))

    def fail_once(step: IssuedStep) -> Any:
        if next(calls) == 0:
            raise KeyboardInterrupt
        return collect(step)

    monkeypatch.setattr(IssuedStep, "collect", fail_once)
    with pytest.raises(KeyboardInterrupt):  # the new one's encoder is in the step after this one
        engine.step()
    monkeypatch.setattr(IssuedStep, "collect", collect)
    finished = run_to_the_end(engine)
    assert sorted(finished) == ["new", "word"]
    expected = in_turn.generate(WORDS[:2], GREEDY, progress=False)
    assert [results(finished["word"]), results(finished["new"])] == [results(each) for each in expected]
    assert_nothing_is_held(engine)
