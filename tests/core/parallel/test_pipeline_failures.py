"""A request that fails in any stage of a pipeline fails alone, whatever is under way. Here stages are threads."""

from __future__ import annotations

import pickle
import queue
import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from transept import Engine, RequestOutput, SamplingParams
from transept.core.checkpoints.model_description import describe_model
from transept.core.checkpoints.source import locate
from transept.core.execution.executor import Capacity, Executor, WorkerConfig
from transept.core.execution.step_deltas import StepDecoder, StepEncoder
from transept.core.execution.worker import Worker
from transept.core.parallel.connection import dumps
from transept.core.parallel.group import ParallelGroup
from transept.core.parallel.pipeline_stage import PipelineStage
from transept.core.parallel.stage_links import SocketLink
from transept.core.scheduling.step import StepInput, StepOutput

CHECKPOINT = Path(__file__).parents[2] / "data" / "cmudict" / "bart-g2p"
WORDS = ["grapheme", "ox", "transept", "nave", "engine", "crossing", "choir", "apse"]
KINDS = [
    SamplingParams(temperature=0.0, max_tokens=20),
    SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True),
    SamplingParams(temperature=0.9, seed=5, n=2, max_tokens=9),
    SamplingParams(num_beams=3, num_return_sequences=2, max_tokens=9),
]
BROKEN = "zzz"  # a prompt of this is what fails


class StageThreads(Executor):
    """Workers that are stages, each in a thread of this process."""

    def __init__(self, config: WorkerConfig, count: int) -> None:
        self.links: list[SocketLink] = []
        joined: list[dict[int, Any]] = [{} for _ in range(count)]
        for index in range(count - 1):
            for other in {index + 1, count - 1}:
                ours, theirs = (SocketLink(end.detach()) for end in socket.socketpair())
                joined[index][other], joined[other][index] = ours, theirs
                self.links += [ours, theirs]
        stages = [PipelineStage(index, count, links) for index, links in enumerate(joined)]
        described = describe_model(config.path, str(config.path), None)
        self.workers = [Worker(config, described, ParallelGroup(), stage) for stage in stages]
        blocks = self.workers[0].num_device_blocks, self.workers[0].num_host_blocks
        self.capacity = Capacity(*blocks, asynchronous=True, num_stages=count)
        self.orders: list[queue.SimpleQueue[Any]] = [queue.SimpleQueue() for _ in stages]
        self.outputs: queue.SimpleQueue[tuple[int, StepOutput | Exception]] = queue.SimpleQueue()
        self.number, self.encoder, self.decoders = 0, StepEncoder(), [StepDecoder() for _ in stages]
        self.threads = [threading.Thread(target=self._work, args=(index,), daemon=True) for index in range(count)]
        for thread in self.threads:
            thread.start()

    def _work(self, index: int) -> None:
        worker = self.workers[index]
        try:
            while (order := self.orders[index].get()) is not None:
                worker.runner.stage.step, pickled = order
                step = self.decoders[index].decode(pickle.loads(pickled))
                output = worker.runner.issue(step).collect()
                if worker.runner.stage.is_last:
                    self.outputs.put((order[0], output))
        except Exception as error:
            self.outputs.put((0, error))

    def check_open(self) -> None: ...

    def issue(self, step: StepInput) -> int:
        self.number += 1
        pickled = dumps(self.encoder.encode(step))
        for orders in self.orders:
            orders.put((self.number, pickled))
        return self.number

    def collect(self, number: int) -> StepOutput:
        while True:
            collected, output = self.outputs.get(timeout=60)
            if isinstance(output, Exception):
                self.outputs.put((0, output))  # for the steps after this one
                raise output
            if collected == number:
                return output

    def close(self) -> None:
        for orders in self.orders:
            orders.put(None)
        for thread in self.threads:
            thread.join(30)
        for link in self.links:
            link._socket.close()


@pytest.fixture(scope="module")
def reference() -> Engine:
    return Engine(CHECKPOINT, device="cpu", kv_cache_bytes=1 << 24)


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(CHECKPOINT, device="cpu", kv_cache_bytes=1 << 22, block_size=8, max_num_seqs=12)
    limits = engine.scheduler.config
    executor = StageThreads(WorkerConfig(Path(locate(str(CHECKPOINT))), engine.config, limits), 2)
    engine.executor = engine.core.executor = executor
    yield engine
    executor.close()
    assert engine.block_manager.num_free_device_blocks == engine.block_manager.num_device_blocks


def results(output: RequestOutput) -> Any:
    return [(each.token_ids, each.text, each.finish_reason) for each in output.outputs]


@pytest.mark.parametrize("method", ["encode", "decode"])
@pytest.mark.parametrize("stage", [0, 1])
def test_what_fails_in_a_stage_fails_alone(engine: Engine, reference: Engine, stage: int, method: str) -> None:
    broken = engine.preprocess(BROKEN).encoder.token_ids
    model = engine.executor.workers[stage].runner.model
    works = getattr(model, method)

    def fails(*given: Any, **options: Any) -> Tensor:
        lengths = given[2].encoder_start_loc if method == "encode" else given[3].cross_seq_lens
        tokens = given[0].tolist()
        found = len(broken) in lengths if method == "decode" else contains(tokens, broken)
        if found:
            raise ValueError("this stage is broken")
        return works(*given, **options)

    setattr(model, method, fails)
    rng = random.Random(stage)
    asked: dict[str, tuple[str, SamplingParams]] = {}
    finished: dict[str, RequestOutput] = {}
    waiting = [str(index) for index in range(60)]
    most = 0
    while waiting or engine.has_unfinished_requests:
        for _ in range(min(rng.choice((0, 1, 4)), len(waiting))):
            name = waiting.pop()
            word = BROKEN if rng.random() < 0.15 else rng.choice(WORDS[:4])  # so that many share an encoder's output
            if method == "decode" and word != BROKEN and len(engine.preprocess(word).encoder.token_ids) == len(broken):
                word = WORDS[0]
            asked[name] = word, rng.choice(KINDS)
            engine.add_request(name, *asked[name])
        for output in engine.step():
            if output.finished:
                finished[output.request_id] = output
        most = max(most, len(engine.core.in_flight))
        engine.block_manager.check_integrity()
    assert most == 1  # beside the one that was collected
    expected = {key: reference.generate(*key, progress=False)[0] for key in {*asked.values()} if key[0] != BROKEN}
    assert sum(word == BROKEN for word, _ in asked.values()) > 3
    for name, key in asked.items():
        if key[0] == BROKEN:
            assert "this stage is broken" in str(finished[name].error)
        else:
            assert finished[name].error is None
            assert results(finished[name]) == results(expected[key])


def contains(tokens: list[int], part: list[int]) -> bool:
    return any(tokens[first : first + len(part)] == part for first in range(len(tokens) - len(part) + 1))
