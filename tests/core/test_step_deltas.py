"""Steps that cross between processes as deltas arrive as they were sent, whatever happens to their requests."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from simulated_engine import Simulation
from test_random_operations import OPERATIONS_A_RUN, random_run, random_run_of_a_pipeline
from windowed_bart import put_windows

from transept import Engine, RequestOutput, SamplingParams
from transept.core.execution import step_deltas
from transept.core.execution.executor import Executor
from transept.core.execution.step_deltas import (
    KNOWN_INPUTS,
    StepDecoder,
    StepDelta,
    StepEncoder,
    pack_output,
    unpack_output,
)
from transept.core.parallel.connection import dumps
from transept.core.scheduling.scheduler import Scheduler, SchedulerOutputs
from transept.core.scheduling.step import StepInput, StepOutput

CHECKPOINT = Path(__file__).parents[1] / "data" / "cmudict" / "bart-g2p"
WORDS = ["grapheme", "ox", "transept", "nave", "engine", "crossing"]
WINDOW = 6


def description(step: StepInput) -> Any:
    """All that a step says, by value and in order."""
    return (
        [vars(each) for each in step.encodes],
        [
            {
                **vars(each),
                "seq_data": [(seq_id, replace(data)) for seq_id, data in each.seq_data.items()],
                "block_tables": [*each.block_tables.items()],
            }
            for each in step.decodes
        ],
        step.moves,
    )


class Border:
    """What steps cross: the engine's side, pickles, a worker's side. Now and then a step does not reach the worker."""

    def __init__(self, lost: float = 0.0) -> None:
        self.encoder, self.decoder = StepEncoder(), StepDecoder()
        self.rng, self.lost = random.Random(3), lost
        self.num_bytes: list[int] = []
        self.introduced: Counter[str] = Counter()  # how often each request came with its prompt
        self.num_slices: Counter[int] = Counter()  # in how many steps each encode was, by its id
        self.num_inputs: Counter[int] = Counter()  # and in how many with its input

    def cross(self, step: StepInput) -> StepInput:
        if self.rng.random() < self.lost:
            self.encoder.encode(step)
            self.encoder = StepEncoder()
        pickled = dumps(self.encoder.encode(step))
        delta: StepDelta = pickle.loads(pickled)
        decoded = self.decoder.decode(delta)
        assert description(decoded) == description(step)
        self.num_bytes.append(len(pickled))
        self.num_slices.update(each.encode_id for each in delta.encodes)
        self.num_inputs.update(each.encode_id for each in delta.encodes if each.inputs != KNOWN_INPUTS)
        self.introduced.update(each.request_id for each in delta.requests if each.constants is not None)
        return decoded


class TellingScheduler(Scheduler):
    """A scheduler whose steps cross a border."""

    def __init__(self, *given: Any, border: Border) -> None:
        super().__init__(*given)
        self.border = border

    def schedule(self, *given: Any, **options: Any) -> SchedulerOutputs:
        outputs = super().schedule(*given, **options)
        self.border.cross(outputs.step)
        return outputs


def telling(border: Border, *given: int, **options: int) -> Simulation:
    return Simulation(*given, **options, make_scheduler=partial(TellingScheduler, border=border))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("lost", "most_absent"), [(0.0, 256), (0.05, 2)])
def test_thousands_of_random_steps_arrive(lost: float, most_absent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_deltas, "MOST_ABSENT", most_absent)
    done: Counter[str] = Counter()
    num_steps = 0
    for seed in range(5_000 // OPERATIONS_A_RUN):
        border = Border(lost)
        random_run(random.Random(seed), done, partial(telling, border))
        num_steps += len(border.num_bytes)
        border = Border(lost)
        random_run_of_a_pipeline(random.Random(seed), partial(telling, border))
        num_steps += len(border.num_bytes)
        assert len(border.decoder._requests) <= 10 + most_absent
    assert num_steps > 5_000
    assert min(done["preempted by swap"], done["preempted by recompute"], done["fail"], done["interrupt"]) > 10


def test_a_request_crosses_once_and_later_messages_do_not_grow() -> None:
    border = Border()
    sim = telling(border, device=1000, max_num_seqs=32)
    for _ in range(32):
        sim.add(encoder=20, prompt=30, max_tokens=60)
    sim.finish()
    assert border.introduced == dict.fromkeys(sim.groups, 1)
    with_blocks = max(border.num_bytes[2:])
    assert border.num_bytes[0] > 5 * with_blocks
    assert with_blocks < 32 * 32  # a token, and now and then a block
    assert min(border.num_bytes[-3:]) < 100


def test_an_input_crosses_once_if_its_encode_takes_several_steps() -> None:
    border = Border()
    sim = telling(border, layers_per_step=1)
    for _ in range(6):
        sim.add(max_tokens=20)
        sim.step()
    sim.finish()
    assert max(border.num_slices.values()) > 1
    assert border.num_inputs == dict.fromkeys(border.num_slices, 1)


@dataclass(frozen=True)
class Forbids:
    """A logits processor that lets all tokens but one pass."""

    token: int

    def __call__(self, logits: Any, rows: Any) -> None:
        logits[:, self.token] = float("-inf")


def above_five(tokens: list[int]) -> range:
    """A function of tokens that allows all but the first six."""
    return range(6, 50)


KINDS = [
    SamplingParams(temperature=0.0, max_tokens=30, ignore_eos=True),
    SamplingParams(temperature=0.0, max_tokens=1),
    SamplingParams(temperature=0.9, seed=5, n=3, max_tokens=20, logprobs=1),
    SamplingParams(num_beams=3, num_return_sequences=2, max_tokens=20),
    SamplingParams(temperature=0.0, max_tokens=15, encoder_no_repeat_ngram_size=2, repetition_penalty=1.3),
    SamplingParams(temperature=0.0, max_tokens=9, encoder_repetition_penalty=2.0, sequence_bias={(7, 8): 3.0}),
    SamplingParams(temperature=0.0, max_tokens=12, logits_processors=(Forbids(7),)),
    SamplingParams(num_beams=2, max_tokens=9, logits_processors=(Forbids(9),), allowed_next_tokens=above_five),
]


class AcrossBorder(Executor):
    """An executor that computes the steps that arrive, and whose outputs come back the same way."""

    def __init__(self, executor: Executor, num_stages: int) -> None:
        self.executor, self.border = executor, Border(lost=0.02)
        self.capacity = replace(executor.capacity, asynchronous=True, num_stages=num_stages)
        self.had_pending = False

    def check_open(self) -> None:
        self.executor.check_open()

    def issue(self, step: StepInput) -> int:
        tokens = [data.last_token_id for each in step.decodes for data in each.seq_data.values()]
        self.had_pending |= step_deltas.PENDING in tokens
        return self.executor.issue(self.border.cross(step))

    def collect(self, number: int) -> StepOutput:
        output = self.executor.collect(number)
        arrived = unpack_output(*pickle.loads(dumps(pack_output(output))))
        assert arrived == output
        return arrived

    def close(self) -> None:
        self.executor.close()


def run(engine: Engine, rng: random.Random, count: int) -> tuple[dict[str, RequestOutput], dict[str, Any]]:
    """Requests of every kind, some of which are aborted, and whose names come again.

    Returns their outputs, and what each was asked.
    """
    waiting = [(str(index % 7), rng.choice(WORDS), rng.choice(KINDS)) for index in range(count)]
    asked: dict[str, Any] = {}
    done: dict[str, RequestOutput] = {}
    live: dict[str, str] = {}
    while waiting or engine.has_unfinished_requests:
        if waiting and waiting[-1][0] not in live:
            name, word, params = waiting.pop()
            live[name] = f"{name} {len(waiting)}"
            asked[live[name]] = word, params
            engine.add_request(name, word, params)
        if live and rng.random() < 0.03:
            name = rng.choice([*live])
            engine.abort_request(name)
            del live[name]
        for output in engine.step():
            if output.finished and output.request_id in live:
                done[live.pop(output.request_id)] = output
    return done, asked


def tokens_of(output: RequestOutput) -> Any:
    assert output.error is None
    return [(each.token_ids, each.finish_reason) for each in output.outputs]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("num_stages", [1, 3], ids=["look ahead", "three stages"])
@pytest.mark.parametrize("window", [None, WINDOW], ids=["all tokens", "window"])
def test_requests_of_an_engine_cross(window: int | None, num_stages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if window is not None:
        put_windows(monkeypatch, window, window)
    options: dict[str, Any] = {"device": "cpu", "dtype": "float32", "block_size": 4}
    reference = Engine(CHECKPOINT, **options, kv_cache_bytes=1 << 24)
    block_bytes = reference.config.kv_cache_bytes // reference.block_manager.num_device_blocks
    few = 60 * block_bytes
    few_blocks: dict[str, Any] = {"kv_cache_bytes": few, "swap_bytes": few // 3, "max_num_seqs": 16}
    engine = Engine(CHECKPOINT, **options, **few_blocks, encoder_layers_per_step=1)
    across = engine.executor = engine.core.executor = AcrossBorder(engine.executor, num_stages)
    done, asked = run(engine, random.Random(num_stages), 120)
    assert len(done) > 80
    assert across.had_pending == (num_stages == 1)
    assert max(across.border.num_slices.values()) > 1
    expected = {key: tokens_of(reference.generate(*key, progress=False)[0]) for key in {*asked.values()}}
    assert {name: tokens_of(output) for name, output in done.items()} == {name: expected[asked[name]] for name in done}
