"""A step is a transaction: what raises for one request ends that one, and all others get the tokens they had alone."""

import dataclasses
import pickle
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from interruptions import interrupted_after

from transept import Engine, PromptProbe, RequestOutput, SamplingParams
from transept.core.request.pooling import Pooling
from transept.core.scheduling.step import StepInput, StepOutput
from transept.errors import ParameterError, PluginError, RequestFailedError

CHECKPOINTS = Path(__file__).parents[1] / "data" / "cmudict"
WORDS = ["grapheme", "ox", "transept", "nave", "engine", "crossing", "choir", "apse"]
GREEDY = SamplingParams(temperature=0.0, max_tokens=20)
FILES = ("engine_core", "scheduler", "block_manager", "block_allocator", "encoder_cache", "beam_search", "look_ahead")
KINDS = [
    GREEDY,
    SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True),
    SamplingParams(temperature=0.9, seed=5, n=2, max_tokens=9),
    SamplingParams(num_beams=3, num_return_sequences=2, max_tokens=9),
    SamplingParams(temperature=0.0, max_tokens=15, stop=["AH"]),
]


@dataclasses.dataclass(frozen=True)
class RaisesAt:
    """A logits processor that raises once a row has so many tokens."""

    length: int

    def __call__(self, logits: Any, rows: Any) -> None:
        if any(len(row.output_token_ids) >= self.length for row in rows):
            raise ValueError("this processor is broken")


@dataclasses.dataclass(frozen=True)
class LeavesNothing:
    """A logits processor that puts one number for all logits of a row that has three tokens."""

    number: float

    def __call__(self, logits: Any, rows: Any) -> None:
        for index, row in enumerate(rows):
            if len(row.output_token_ids) == 3:
                logits[index] = self.number


@dataclasses.dataclass(frozen=True)
class ReturnsAt:
    """A logits processor that returns what a function makes of the logits once a row has three tokens."""

    make: Callable[[torch.Tensor], object]

    def __call__(self, logits: torch.Tensor, rows: Any) -> object:
        return self.make(logits) if any(len(row.output_token_ids) == 3 for row in rows) else logits.clone()


class Tokenizer:
    """A real tokenizer whose decoding of some tokens raises."""

    def __init__(self, tokenizer: Any, broken: int) -> None:
        self._tokenizer, self.broken = tokenizer, broken

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._tokenizer(*args, **options)

    def decode(self, token_ids: list[int], **options: Any) -> str:
        if self.broken in token_ids:
            raise UnicodeError("this tokenizer is broken")
        return self._tokenizer.decode(token_ids, **options)


@pytest.fixture(params=[(False, 1), (True, 1), (True, 2)], ids=["in turn", "ahead", "pipeline"])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """An engine whose steps are issued one by one, or before the last one is collected, or as those of a pipeline."""
    engine = Engine(CHECKPOINTS / "bart-g2p", dtype="float32", device="cpu", kv_cache_bytes=1 << 26)
    asynchronous, num_stages = request.param
    told = dataclasses.replace(engine.executor.capacity, asynchronous=asynchronous, num_stages=num_stages)
    engine.executor.capacity = told
    yield engine
    assert not engine.has_unfinished_requests
    engine.block_manager.check_integrity()
    assert engine.block_manager.num_free_device_blocks == engine.block_manager.num_device_blocks


@pytest.fixture(scope="module")
def alone() -> Callable[[str, SamplingParams], Any]:
    reference = Engine(CHECKPOINTS / "bart-g2p", dtype="float32", device="cpu", kv_cache_bytes=1 << 26)
    return lambda word, params: results(reference.generate(word, params)[0])


def results(output: RequestOutput) -> Any:
    return [(each.token_ids, each.text, each.finish_reason) for each in output.outputs]


def run(engine: Engine) -> dict[str, RequestOutput]:
    """Every request's last output."""
    finished: dict[str, RequestOutput] = {}
    while engine.has_unfinished_requests:
        for output in engine.step():
            assert output.request_id not in finished
            if output.finished:
                finished[output.request_id] = output
    return finished


def assert_failed(output: RequestOutput, message: str) -> None:
    assert isinstance(output.error, RequestFailedError)
    assert message in str(output.error)
    assert message in str(output.error.__cause__)
    assert all(each.finish_reason in ("error", "stop", "length") for each in output.outputs)


@pytest.mark.parametrize("length", [0, 1, 3])
def test_a_processor_that_raises_ends_its_request_and_holds_up_nobody(
    engine: Engine, alone: Callable, length: int
) -> None:
    broken = dataclasses.replace(GREEDY, logits_processors=[RaisesAt(length)], ignore_eos=True)
    for index, word in enumerate(WORDS):
        engine.add_request(f"good {index}", word, KINDS[index % len(KINDS)])
        engine.add_request(f"bad {index}", word, broken)
    steps = 0
    finished: dict[str, RequestOutput] = {}
    while engine.has_unfinished_requests:
        finished |= {output.request_id: output for output in engine.step() if output.finished}
        steps += 1
    assert steps <= 25 * engine.executor.capacity.num_stages  # as many as the longest takes
    for index, word in enumerate(WORDS):
        assert results(finished[f"good {index}"]) == alone(word, KINDS[index % len(KINDS)])
        assert finished[f"good {index}"].error is None
        assert_failed(finished[f"bad {index}"], "this processor is broken")
        assert len(finished[f"bad {index}"].outputs[0].token_ids) == length


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda logits: logits[:, :5], "returned a torch.float32 tensor of shape [1, 5] on cpu; it must return None"),
        (lambda logits: logits[0], "of shape [127]"),
        (lambda logits: logits.half(), "returned a torch.float16 tensor"),
        (lambda logits: logits.to("meta"), "on meta"),
        (lambda logits: logits.tolist(), "returned [["),
        (lambda logits: True, "returned True"),
    ],
)
def test_a_processor_that_returns_no_logits_ends_its_request_alone(
    engine: Engine, alone: Callable, make: Callable, message: str
) -> None:
    for index, kind in enumerate((GREEDY, *KINDS[2:4])):
        broken = dataclasses.replace(kind, logits_processors=[ReturnsAt(make)], min_tokens=5)
        engine.add_request(f"bad {index}", WORDS[index], broken)
        engine.add_request(f"good {index}", WORDS[index], kind)
    finished = run(engine)
    assert_failed(finished["bad 0"], message)
    for index, kind in enumerate((GREEDY, *KINDS[2:4])):
        assert isinstance(finished[f"bad {index}"].error, RequestFailedError)
        assert results(finished[f"good {index}"]) == alone(WORDS[index], kind)


def test_beams_and_samples_fail_as_a_whole(engine: Engine, alone: Callable) -> None:
    for name, kind in (("beams", KINDS[3]), ("samples", KINDS[2])):
        engine.add_request(name, WORDS[0], dataclasses.replace(kind, logits_processors=[RaisesAt(3)]))
    engine.add_request("good", WORDS[0], GREEDY)
    finished = run(engine)
    assert_failed(finished["beams"], "this processor is broken")
    assert_failed(finished["samples"], "this processor is broken")
    assert results(finished["good"]) == alone(WORDS[0], GREEDY)


@pytest.mark.parametrize("number", [float("nan"), float("-inf")], ids=["NaN", "all forbidden"])
def test_where_no_token_can_be_chosen_the_request_ends(engine: Engine, alone: Callable, number: float) -> None:
    kinds = dict(zip(("greedy", "scores", "samples", "beams"), (GREEDY, KINDS[1], *KINDS[2:4]), strict=True))
    for name, kind in kinds.items():
        broken = dataclasses.replace(kind, logits_processors=[LeavesNothing(number)], min_tokens=5)
        engine.add_request(name, WORDS[0], broken)
    engine.add_request("good", WORDS[0], GREEDY)
    finished = run(engine)
    for name in kinds:
        assert "no token can be chosen: the logits are NaN" in str(finished[name].error)
        assert all(len(each.token_ids) == 3 for each in finished[name].outputs)
    assert results(finished["good"]) == alone(WORDS[0], GREEDY)


def test_a_text_that_cannot_be_made_ends_its_request(engine: Engine, alone: Callable) -> None:
    expected = {word: alone(word, GREEDY) for word in WORDS}
    (broken, *_), *_ = expected[WORDS[2]][0]
    others = [word for word in WORDS if broken not in expected[word][0][0]]
    assert others
    engine.stop_checker = engine.core.stop_checker
    engine.stop_checker.tokenizer = Tokenizer(engine.tokenizer, broken)
    for word in (WORDS[2], *others):
        engine.add_request(word, word, GREEDY)
    finished = run(engine)
    assert_failed(finished[WORDS[2]], "this tokenizer is broken")
    for word in others:
        assert results(finished[word]) == expected[word]


def test_generate_names_the_prompt_that_failed(engine: Engine, alone: Callable) -> None:
    broken = dataclasses.replace(GREEDY, logits_processors=[RaisesAt(2)])
    with pytest.raises(RequestFailedError, match=r"prompt 2: .*ValueError: this processor is broken"):
        engine.generate(WORDS[:4], [GREEDY, GREEDY, broken, GREEDY])
    assert results(engine.generate(WORDS[0], GREEDY)[0]) == alone(WORDS[0], GREEDY)


def broken(*given: Any) -> None:
    raise KeyError("this is broken")


@pytest.mark.parametrize(
    ("what", "declared", "prompt"),
    [
        ('the "sound" mapper', {"input_mappers": {"sound": broken}}, {"multi_modal_data": {"sound": b""}}),
        ('encoder_inputs["marks"]', {"encoder_inputs": {"marks": broken}}, {"prompt": "ox"}),
        ("default_decoder_prompt", {"default_decoder_prompt": broken}, "ox"),
        ("prepare_decoder_prompt", {"prepare_decoder_prompt": broken}, {"encoder_prompt": "ox", "decoder_prompt": "T"}),
    ],
)
def test_a_plugins_function_that_raises_is_the_requests_error_and_names_the_plugin(
    engine: Engine, alone: Callable, monkeypatch: pytest.MonkeyPatch, what: str, declared: dict, prompt: Any
) -> None:
    engine.add_request("good", WORDS[0], GREEDY)
    monkeypatch.setattr(engine.preprocess, "spec", dataclasses.replace(engine.spec, **declared))
    message = rf'{re.escape(what)} of plugin family "bart" \(plugin "bart" of transept \S+\) raised KeyError: .*broken'
    with pytest.raises(RequestFailedError, match=f"^{message}.*report it to its author") as raised:
        engine.add_request("bad", prompt, GREEDY)
    assert isinstance(raised.value, PluginError)
    assert isinstance(raised.value.__cause__, KeyError)
    with pytest.raises(RequestFailedError, match=f"^prompt 0: {message}") as raised:
        engine.generate([prompt, prompt], GREEDY)
    assert isinstance(raised.value.__cause__, KeyError)
    assert results(run(engine)["good"]) == alone(WORDS[0], GREEDY)


def test_what_is_no_list_is_no_decoder_prompt(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = dataclasses.replace(engine.spec, default_decoder_prompt=lambda view: None)
    monkeypatch.setattr(engine.preprocess, "spec", nothing)
    with pytest.raises(PluginError, match=r'default_decoder_prompt of plugin family "bart" .* returned None, of type'):
        engine.add_request("bad", WORDS[0], GREEDY)


def test_a_probe_that_raises_ends_its_request(engine: Engine, alone: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    model = engine.executor.worker.runner.model
    compute_logits = model.compute_logits

    def breaks_for_three_rows(hidden: Any) -> Any:  # which only the probe asks for
        if len(hidden) == 3:
            raise RuntimeError("this head is broken")
        return compute_logits(hidden)

    monkeypatch.setattr(model, "compute_logits", breaks_for_three_rows)
    probe = PromptProbe(logprobs=((0, 5), (1, 5), (1, 6)))
    engine.add_request("good", WORDS[0], GREEDY)
    engine.add_request("bad", WORDS[1], dataclasses.replace(GREEDY, prompt_probe=probe))
    finished = run(engine)
    assert_failed(finished["bad"], "this head is broken")
    assert results(finished["good"]) == alone(WORDS[0], GREEDY)


@pytest.mark.parametrize("failing", ["issue", "collect"])
def test_an_executor_that_fails_ends_all_in_its_step_and_no_other(
    engine: Engine, alone: Callable, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    for word in WORDS[:3]:
        engine.add_request(word, word, GREEDY)
    engine.step()
    method, calls = getattr(engine.executor, failing), iter(range(100))

    def fails_once(given: Any) -> Any:
        if next(calls) == 0:
            raise ConnectionError("the worker is gone")
        return method(given)

    monkeypatch.setattr(engine.executor, failing, fails_once)
    finished = run(engine)
    failed = [word for word in WORDS[:3] if finished[word].error is not None]
    assert len(failed) in ((1, 2) if engine.executor.capacity.num_stages > 1 else (3,))
    for word in WORDS[:3]:
        if word in failed:
            assert str(finished[word].error.__cause__) == "the worker is gone"
        else:
            assert results(finished[word]) == alone(word, GREEDY)
    assert results(engine.generate(WORDS[3], GREEDY)[0]) == alone(WORDS[3], GREEDY)


def test_an_exception_between_two_appends_leaves_the_right_tokens(
    engine: Engine, alone: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step after it is issued by then, for the tokens of all."""
    checker = engine.core.stop_checker
    check, calls = checker.check, iter(range(1000))

    def interrupted(*given: Any) -> None:
        if next(calls) == 10:
            raise KeyboardInterrupt
        check(*given)

    monkeypatch.setattr(checker, "check", interrupted)
    for word in WORDS[:4]:
        engine.add_request(word, word, GREEDY)
    with pytest.raises(KeyboardInterrupt):
        run(engine)
    finished = run(engine)
    assert sorted(finished) == sorted(WORDS[:4])
    failed = [word for word, output in finished.items() if output.error is not None]
    assert len(failed) == 1  # the one whose token it struck
    for word in set(WORDS[:4]).difference(failed):
        assert results(finished[word]) == alone(word, GREEDY)


def test_a_closed_engine_fails_its_requests(engine: Engine) -> None:
    engine.add_request("one", WORDS[0], GREEDY)
    engine.step()
    engine.close()
    (output,) = run(engine).values()
    assert "closed" in str(output.error)


def test_a_step_pickles_and_holds_no_groups(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that went through a pickle, as to another process, gives the same."""
    issue, collect, seen = engine.executor.issue, engine.executor.collect, []

    def through_a_pickle(step: Any) -> int:
        copied = pickle.loads(pickle.dumps(step))
        seen.append(copied)
        return issue(copied)

    expected = [results(output) for output in engine.generate(WORDS[:5], KINDS)]
    engine.block_manager.reset()
    monkeypatch.setattr(engine.executor, "issue", through_a_pickle)
    monkeypatch.setattr(engine.executor, "collect", lambda number: pickle.loads(pickle.dumps(collect(number))))
    assert [results(output) for output in engine.generate(WORDS[:5], KINDS)] == expected
    assert {type(each).__name__ for step in seen for each in step.decodes} == {"SequenceGroupMetadata"}
    assert sum(len(step.encodes) for step in seen) == 5
    assert all(each.encode_id is None for step in seen for each in step.decodes if not each.is_prefill)
    assert isinstance(collect(issue(seen[0])), StepOutput)


@pytest.mark.parametrize("engine", [(False, 1)], ids=["in turn"], indirect=True)
def test_a_step_may_only_encode(engine: Engine, alone: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    issue, collect, encoded = engine.executor.issue, engine.executor.collect, []

    def in_two_steps(step: StepInput) -> int:
        if step.encodes:
            encoded.extend(step.encodes)
            output = collect(issue(StepInput(step.encodes, moves=step.moves)))
            assert output == StepOutput()
        return issue(StepInput([], step.decodes, step.moves if not step.encodes else StepInput().moves))

    monkeypatch.setattr(engine.executor, "issue", in_two_steps)
    for word, params in zip(WORDS, KINDS, strict=False):
        engine.add_request(word, word, params)
    finished = run(engine)
    assert len(encoded) == len(KINDS)
    for word, params in zip(WORDS, KINDS, strict=False):
        assert results(finished[word]) == alone(word, params)


def test_requests_that_only_encode_share_steps_and_fail_alone(
    engine: Engine, alone: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = engine.executor.worker.runner.model
    encode, broken = model.encode, engine.preprocess("ox").encoder.token_ids[2]

    def breaks(ids: torch.Tensor, *given: Any) -> torch.Tensor:
        if broken in ids:
            raise RuntimeError("this encoder is broken")
        return encode(ids, *given)

    engine.add_request("reference", WORDS[0], pooling=Pooling("none"))
    reference = run(engine)["reference"].embedding
    monkeypatch.setattr(model, "encode", breaks)
    for word in WORDS[:5]:
        engine.add_request(word, word, GREEDY)
        engine.add_request(f"{word} encoded", word, pooling=Pooling("none"))
    finished = run(engine)
    assert np.array_equal(finished[f"{WORDS[0]} encoded"].embedding, reference)
    assert_failed(finished["ox"], "this encoder is broken")
    assert_failed(finished["ox encoded"], "this encoder is broken")
    assert finished["ox encoded"].embedding is None
    for word in WORDS[2:5]:
        assert results(finished[word]) == alone(word, GREEDY)
        assert finished[f"{word} encoded"].outputs == []


def test_an_input_is_encoded_once_though_requests_that_read_it_fail(
    engine: Engine, alone: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = engine.executor.worker.runner.model
    encode, calls = model.encode, Counter[int]()
    monkeypatch.setattr(model, "encode", lambda ids, *given: calls.update([len(ids)]) or encode(ids, *given))
    engine.add_request("bad", WORDS[0], dataclasses.replace(GREEDY, logits_processors=[RaisesAt(0)]))
    engine.add_request("good", WORDS[0], GREEDY)
    finished = run(engine)
    assert calls.total() == 1
    assert_failed(finished["bad"], "this processor is broken")
    assert results(finished["good"]) == alone(WORDS[0], GREEDY)


def test_a_generation_configs_own_end_of_sequence_ends_a_request(engine: Engine, alone: Callable) -> None:
    ((tokens, *_),) = alone(WORDS[0], GREEDY)
    config = type(engine.generation_config)(eos_token_id=tokens[2])
    (output,) = engine.generate(WORDS[0], GREEDY, generation_config=config)
    assert output.outputs[0].token_ids == tokens[:3]
    assert output.outputs[0].finish_reason == "stop"
    (output,) = engine.generate(WORDS[0], dataclasses.replace(GREEDY, eos_token_ids=[tokens[1]]))
    assert output.outputs[0].token_ids == tokens[:2]
    with pytest.raises(ParameterError, match="eos_token_ids holds 999999"):
        engine.generate(WORDS[0], SamplingParams(eos_token_ids=[999_999]))


def interrupted_run(engine: Engine, num_lines: int, files: Sequence[str]) -> tuple[dict[str, RequestOutput], list[str]]:
    """Step to the end, through one KeyboardInterrupt. Returns the finished requests, and where it struck."""
    finished: dict[str, RequestOutput] = {}
    with interrupted_after(num_lines, files) as struck:
        goes_on = True
        while goes_on:
            try:
                finished |= {output.request_id: output for output in engine.step() if output.finished}
                goes_on = engine.has_unfinished_requests
            except KeyboardInterrupt:
                engine.block_manager.check_integrity()
    return finished, struck


@pytest.mark.parametrize("engine", [(True, 1)], ids=["ahead"], indirect=True)
def test_an_interrupt_while_a_step_is_issued_ahead_costs_no_request(engine: Engine, alone: Callable) -> None:
    params = SamplingParams(temperature=0.0)
    expected = {word: alone(word, params) for word in WORDS[:4]}
    places = set()
    for num_lines in range(1, 160, 4):
        for word in expected:
            engine.add_request(word, word, params)
        finished, struck = interrupted_run(engine, num_lines, ["look_ahead"])
        places.update(struck)
        assert {word: results(output) for word, output in finished.items()} == expected, struck
    assert len(places) > 8


@pytest.mark.sampled(3)
def test_an_interrupt_anywhere_in_a_step_costs_one_request_at_most(engine: Engine, alone: Callable) -> None:
    rng = random.Random(1)
    asked = [(word, KINDS[index % len(KINDS)]) for index, word in enumerate(WORDS)]
    expected = {word: alone(word, params) for word, params in asked}
    places, failures = Counter[str](), 0
    for _ in range(80):
        engine.block_manager.reset()  # so that encoders run, and prefills are interrupted, too
        for word, params in asked:
            engine.add_request(word, word, params)
        finished, struck = interrupted_run(engine, rng.randrange(1, 12_000), FILES)
        places.update(struck)
        assert sorted(finished) == sorted(WORDS), struck
        failed = {word for word, output in finished.items() if output.error is not None}
        assert len(failed) <= 1, struck
        failures += len(failed)
        for word in set(WORDS) - failed:
            assert results(finished[word]) == expected[word], struck
        engine.block_manager.check_integrity()
    assert len(places) > 30
    assert failures < 30


@pytest.mark.parametrize("meddle", ["turns", "steps", "clears"])
def test_a_processor_that_meddles_hurts_itself_alone(engine: Engine, alone: Callable, meddle: str) -> None:
    def meddles(logits: Any, rows: Any) -> None:
        if meddle == "turns":
            logits.t_()
        elif meddle == "steps":
            engine.step()
        else:
            rows[0].output_token_ids.clear()

    for index, word in enumerate(WORDS[:4]):
        engine.add_request(word, word, KINDS[index])
    engine.add_request("bad", WORDS[0], dataclasses.replace(GREEDY, logits_processors=[meddles]))
    finished = run(engine)
    for index, word in enumerate(WORDS[:4]):
        assert results(finished[word]) == alone(word, KINDS[index])
    if meddle == "clears":  # a copy
        assert results(finished["bad"]) == alone(WORDS[0], GREEDY)
    else:
        assert isinstance(finished["bad"].error, RequestFailedError)
