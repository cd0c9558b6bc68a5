"""Encoders that take several steps beside requests that decode: the same bits, and nothing left behind."""

from __future__ import annotations

import gc
import random
import threading
import weakref
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from interruptions import interrupted_after
from random_whisper import save_random_whisper

from transept import Engine, RequestOutput, SamplingParams
from transept.core.scheduling.encoder_slices import WHOLE_TOKENS, EncoderSlices
from transept.core.scheduling.step import StepInput

CMUDICT = Path(__file__).parents[2] / "data" / "cmudict"
WORDS = ["grapheme", "ox", "transept", "nave", "engine", "crossing", "choir", "apse"]
KINDS = [
    SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True, logprobs=2),
    SamplingParams(temperature=0.9, seed=3, n=2, max_tokens=9, logprobs=2),
    SamplingParams(num_beams=2, max_tokens=8, logprobs=2),
]
OPTIONS: dict[str, Any] = {"device": "cpu", "kv_cache_bytes": 1 << 24}
FILES = ("encoder_runner", "sliced_encodes", "checked_model", "encoder_slices", "scheduler")
NUM_LAYERS = 3  # of the encoders in CMUDICT


def chosen(output: RequestOutput) -> Any:
    return [(each.token_ids, each.logprobs) for each in output.outputs]


def tokens(output: Any) -> Any:
    """Without log probabilities, which another kernel computes if a request is computed anew."""
    return [token_ids for token_ids, _ in output]


def watched(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> list[StepInput]:
    """The steps that the engine issues from now on."""
    steps: list[StepInput] = []
    issue = engine.executor.issue
    monkeypatch.setattr(engine.executor, "issue", lambda step: steps.append(step) or issue(step))
    return steps


def num_slices(steps: list[StepInput]) -> int:
    return sum(encode.num_layers is not None for step in steps for encode in step.encodes)


def run(engine: Engine, asked: list[tuple[str, Any, SamplingParams]], every: int = 1) -> dict[str, RequestOutput]:
    """Add a request in every so-manieth step."""
    finished: dict[str, RequestOutput] = {}
    waiting, steps = asked[::-1], 0
    while waiting or engine.has_unfinished_requests:
        if waiting and steps % every == 0:
            engine.add_request(*waiting.pop())
        finished |= {output.request_id: output for output in engine.step() if output.finished}
        steps += 1
    return finished


def assert_nothing_held(engine: Engine) -> None:
    manager = engine.block_manager
    manager.check_integrity()
    assert manager.num_free_device_blocks == manager.num_device_blocks
    assert engine.scheduler.sliced is None


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(CMUDICT / "bart-g2p", encoder_layers_per_step=1, **OPTIONS)
    yield engine
    assert_nothing_held(engine)


@pytest.fixture(scope="module")
def alone() -> Callable[[str, SamplingParams], Any]:
    reference = Engine(CMUDICT / "bart-g2p", **OPTIONS)
    return lambda word, params: chosen(reference.generate(word, params)[0])


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "options", [{}, {"quantization": "int8"}, {"block_size": 3}, {"tensor_parallel_size": 2}], ids=str
)
@pytest.mark.parametrize("name", ["bart-g2p", "t5-g2p", "whisper"])
def test_log_probabilities_are_the_same_bits_in_slices(
    name: str, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "whisper":
        path, noise = save_random_whisper(tmp_path), np.random.default_rng(0).normal(size=(8, 16_000)).astype("f4")
        prompts: list[Any] = [{"multi_modal_data": {"audio": (each, 16_000)}} for each in noise]
    else:
        path, prompts = CMUDICT / name, WORDS
    kinds = [KINDS[index % len(KINDS)] for index in range(len(prompts))]
    with Engine(path, **OPTIONS, **options) as reference:
        expected = [chosen(reference.generate(*each)[0]) for each in zip(prompts, kinds, strict=True)]
    with Engine(path, encoder_layers_per_step=1, **OPTIONS, **options) as engine:
        steps = watched(engine, monkeypatch)
        asked = [*zip(map(str, range(len(prompts))), prompts, kinds, strict=True)]
        finished = run(engine, asked, every=2)
        assert [chosen(finished[index]) for index, _, _ in asked] == expected
        layers = engine.executor.capacity.num_encoder_layers
        assert num_slices(steps) >= (layers - 1) * (len(prompts) - 1) - 1
        assert_nothing_held(engine)


@pytest.mark.parametrize("options", [{}, {"tensor_parallel_size": 2}], ids=str)
def test_an_encode_that_pauses_for_urgent_requests_goes_on_with_the_same_bits(
    options: dict[str, Any], alone: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Engine(CMUDICT / "bart-g2p", encoder_layers_per_step=1, **OPTIONS, **options) as engine:
        steps = watched(engine, monkeypatch)
        add = engine.core.add
        monkeypatch.setattr(engine.core, "add", lambda word, asked: add(word, asked, urgent=word in WORDS[2::3]))
        asked = [(word, word, KINDS[index % len(KINDS)]) for index, word in enumerate(WORDS)]
        finished = run(engine, asked, every=2)
        for word, _, params in asked:
            assert tokens(chosen(finished[word])) == tokens(alone(word, params))
            assert options or chosen(finished[word]) == alone(word, params)  # ranks round differently
        parts = [(each.encode_id, each.num_layers) for step in steps for each in step.encodes]
        assert any(part == before for before, part in pairwise(parts))  # a step without a layer of the paused encode
        assert_nothing_held(engine)


def test_a_request_that_is_aborted_while_it_is_encoded_leaves_nothing(
    engine: Engine, alone: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    for word in WORDS[:3]:
        engine.add_request(word, word, KINDS[0])
        engine.step()
    assert engine.scheduler.sliced is not None
    begun = weakref.ref(engine.executor.worker.runner.sliced._under_way)
    engine.abort_request(engine.scheduler.sliced.group.request_id)
    finished = run(engine, [("again", WORDS[1], KINDS[0])])
    assert begun() is None
    assert chosen(finished["again"]) == alone(WORDS[1], KINDS[0])
    assert chosen(finished[WORDS[0]]) == alone(WORDS[0], KINDS[0])


@pytest.mark.parametrize("layer", [0, 1, NUM_LAYERS - 1])
def test_an_encoder_that_fails_in_any_slice_fails_its_request_alone(
    engine: Engine, alone: Callable, layer: int
) -> None:
    layers = engine.executor.worker.runner.model.encoder.layers
    bad = len(engine.preprocess("zzz").encoder.token_ids)

    def fails(module: Any, given: Any) -> None:
        if len(given[0]) == bad:
            raise ValueError("this layer is broken")

    words = [word for word in WORDS if len(engine.preprocess(word).encoder.token_ids) != bad]
    hook = layers[layer].register_forward_pre_hook(fails)
    asked = [(word, word, KINDS[0]) for word in words]
    asked[2:2] = [("bad", "zzz", KINDS[0]), ("equal", "zzz", KINDS[0])]
    finished = run(engine, asked)
    hook.remove()
    for name in ("bad", "equal"):
        assert "this layer is broken" in str(finished[name].error)
    for word in words:
        assert chosen(finished[word]) == alone(word, KINDS[0])
    assert chosen(run(engine, [("bad", "zzz", KINDS[0])])["bad"]) == alone("zzz", KINDS[0])


@pytest.mark.sampled(3)
def test_an_interruption_in_a_slice_costs_nothing(engine: Engine, alone: Callable) -> None:
    rng, places = random.Random(2), set()
    asked = [(word, word, KINDS[index % len(KINDS)]) for index, word in enumerate(WORDS[:5])]
    expected = {word: tokens(alone(word, params)) for word, _, params in asked}
    for _ in range(40):
        engine.block_manager.reset()
        waiting, finished = asked[::-1], {}
        with interrupted_after(rng.randrange(1, 3000), FILES) as struck:
            goes_on = True
            while goes_on:
                try:
                    if waiting and waiting[-1][0] not in finished:
                        engine.add_request(*waiting[-1])
                        waiting.pop()
                    finished |= {output.request_id: output for output in engine.step() if output.finished}
                    goes_on = bool(waiting) or engine.has_unfinished_requests
                except KeyboardInterrupt:
                    if waiting and waiting[-1][0] in engine.scheduler._groups:
                        waiting.pop()
                    engine.block_manager.check_integrity()
        places.update(place.partition(":")[0] for place in struck)
        assert {name: tokens(chosen(output)) for name, output in finished.items()} == expected, struck
        assert_nothing_held(engine)
    assert {"sliced_encodes.py", "scheduler.py"} <= places


def test_another_thread_goes_on_with_a_request_whose_encoder_has_begun(engine: Engine, alone: Callable) -> None:
    """As it does if the threads that read jobs' events take turns; then encoders take one step."""
    core = engine.core
    engine.add_request("first", WORDS[0], KINDS[0])
    engine.step()
    engine.add_request("second", WORDS[1], KINDS[0])
    engine.step()
    assert engine.scheduler.sliced is not None
    finished: list[RequestOutput] = []

    def rest() -> None:
        while engine.scheduler.has_unfinished:
            core.step()
        finished.extend(RequestOutput.from_seq_group(group) for group in dict.fromkeys(core.took_part))

    thread = threading.Thread(target=rest)
    thread.start()
    thread.join()
    assert {output.request_id: chosen(output) for output in finished} == {
        "first": alone(WORDS[0], KINDS[0]),
        "second": alone(WORDS[1], KINDS[0]),
    }
    while engine.has_unfinished_requests:
        engine.step()


def test_readers_of_jobs_encode_in_one_step(engine: Engine, alone: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = watched(engine, monkeypatch)
    outputs = engine.generate(WORDS, KINDS[0])
    assert [chosen(output) for output in outputs] == [alone(word, KINDS[0]) for word in WORDS]
    assert num_slices(steps) == 0


def test_what_a_model_changes_for_its_thread_does_not_reach_other_requests(engine: Engine, alone: Callable) -> None:
    model = engine.executor.worker.runner.model
    encode, dtypes = model.encode, []

    def in_another_dtype(*given: Any, **options: Any) -> torch.Tensor:
        torch.set_default_dtype(torch.float64)
        try:
            return encode(*given, **options)
        finally:
            torch.set_default_dtype(torch.float32)

    decode = model.decode
    model.encode = in_another_dtype
    model.decode = lambda *given: dtypes.append(torch.get_default_dtype()) or decode(*given)
    asked = [(word, word, KINDS[0]) for word in WORDS[:3]]
    finished = run(engine, asked)
    assert {*dtypes} == {torch.float32}
    assert {name: chosen(output) for name, output in finished.items()} == {
        word: alone(word, KINDS[0]) for word in WORDS[:3]
    }


@pytest.mark.parametrize("closed", [True, False])
def test_an_engine_that_is_gone_holds_no_model_though_an_encoder_had_begun(closed: bool) -> None:
    engine = Engine(CMUDICT / "bart-g2p", encoder_layers_per_step=1, **OPTIONS)
    for word in WORDS[:2]:
        engine.add_request(word, word, KINDS[0])
        engine.step()
    assert engine.scheduler.sliced is not None
    model = weakref.ref(engine.executor.worker.runner.model)
    if closed:
        engine.close()
    else:
        del engine
    gc.collect()
    assert model() is None


def test_a_slice_takes_about_as_long_as_the_decode_step_beside_it() -> None:
    slices = EncoderSlices(num_layers=12)
    tokens = 10 * WHOLE_TOKENS
    assert slices.layers(WHOLE_TOKENS, 0, 0) == 12  # short inputs take one step, as many as may be together
    assert slices.layers(WHOLE_TOKENS // 2, 0, 12 * WHOLE_TOKENS // 2) == 12
    assert slices.layers(WHOLE_TOKENS, 0, 12 * WHOLE_TOKENS // 2) == 0
    assert slices.layers(tokens, 0, 0) == 1  # before anything is known
    for _ in range(40):
        slices.ended(work=0, decodes=True, seconds=0.04)
        slices.ended(work=2 * tokens, decodes=True, seconds=0.04 + 2 * 0.01)  # a layer takes 0.01
    assert slices.layers(tokens, 0, 0) in (3, 4)
    assert slices.layers(tokens, 10, 0) == 2
    assert slices.layers(tokens, 0, tokens) == 0  # beside another encoder
    for _ in range(40):
        slices.ended(work=0, decodes=True, seconds=0.001)
    assert slices.layers(tokens, 0, 0) == 1
