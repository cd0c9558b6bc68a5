"""Whatever a worker does, die or hang, every request ends, nothing stays behind, and the next engine starts."""

from __future__ import annotations

import os
import pickle
import random
import re
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch

from transept import Engine, PromptProbe, RequestOutput, SamplingParams
from transept.core.parallel.connection import INLINE_BYTES
from transept.core.request.inputs import EncoderInputs
from transept.core.scheduling.step import Encode, StepInput
from transept.errors import EngineClosedError, EngineDeadError, ForkedProcessError, ParameterError, TranseptError

CHECKPOINT = Path(__file__).parents[2] / "data" / "cmudict" / "bart-g2p"
WORDS = ["grapheme", "ox", "transept", "nave", "engine", "crossing", "choir", "apse"]
GREEDY = SamplingParams(temperature=0.0, max_tokens=20)
LONG = SamplingParams(temperature=0.0, max_tokens=50, ignore_eos=True)
SLOW = pytest.mark.slow
KILLED_BEFORE = 40  # steps, of some 50 that the requests take
WORST_SECONDS = 120  # on a busy machine, until every request has ended
STARTED = "transept.core.execution.worker_main"


STAGES = {"tensor_parallel_size": 1, "pipeline_parallel_size": 2}
STAGES_OF_TWO = {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}


def named(value: Any) -> str:
    """A value of a parameter; sizes as stages and ranks in each."""
    if not isinstance(value, dict):
        return str(value)
    return f"{value.get('pipeline_parallel_size', 1)} x {value.get('tensor_parallel_size', 2)}"


def make(**options: Any) -> Engine:
    return Engine(CHECKPOINT, **{"device": "cpu", "tensor_parallel_size": 2, "kv_cache_bytes": 1 << 24, **options})


def workers(process: psutil.Process | None = None) -> list[psutil.Process]:
    """Of this process or another."""
    found = []
    for child in (process or psutil.Process()).children():
        try:
            if STARTED in child.cmdline():
                found.append(child)
        except psutil.Error:
            continue
    return sorted(found, key=lambda child: child.pid)


def named_memory() -> set[str]:
    """Shared memory that has a name as PyTorch, multiprocessing or Transept would give it."""
    return {str(file) for name in ("torch_*", "psm_*", "transept*") for file in Path("/dev/shm").glob(name)}


@pytest.fixture(autouse=True)
def _nothing_stays_behind(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    temporary, memory = tmp_path_factory.mktemp("temporary"), named_memory()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    descriptors, threads = psutil.Process().num_fds(), set(threading.enumerate())  # some of other tests' engines
    yield
    assert not workers()
    assert not [*temporary.iterdir()]
    wait_until(lambda: named_memory() <= memory)  # other programs' goes by itself
    wait_until(lambda: psutil.Process().num_fds() <= descriptors + 2)  # what imports open once
    wait_until(lambda: not [each for each in {*threading.enumerate()} - threads if each.name.startswith("transept-")])


def wait_until(condition: Callable[[], bool], seconds: float = WORST_SECONDS) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def run(engine: Engine) -> dict[str, RequestOutput]:
    finished: dict[str, RequestOutput] = {}
    while engine.has_unfinished_requests:
        finished |= {output.request_id: output for output in engine.step() if output.finished}
    return finished


def assert_refuses(engine: Engine, match: str) -> None:
    with pytest.raises(EngineClosedError, match=match):
        engine.add_request("late", WORDS[0], GREEDY)
    with pytest.raises(TranseptError, match=match):
        engine.generate(WORDS[0], GREEDY)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("has_spare", [True, False])
def test_large_answers_keep_no_descriptors(has_spare: bool) -> None:
    """Weights of cross-attention, 94 KiB, which a worker passes on as memory if it has a descriptor for that."""
    heads = tuple((layer, head) for layer in range(2) for head in range(4))
    params = SamplingParams(temperature=0.0, max_tokens=2, prompt_probe=PromptProbe(cross_attention_heads=heads))
    prompt = {"encoder_prompt": "transept" * 7, "decoder_prompt": {"prompt_tokens": [2, 0, *range(4, 54)]}}
    alone = Engine(CHECKPOINT, device="cpu")
    (expected,) = alone.generate([prompt], params)
    assert expected.prompt_probe.cross_attention.nbytes > INLINE_BYTES
    engine = make()
    engine.generate([prompt], params)
    before = [worker.num_fds() for worker in workers()]
    for worker, number in zip(workers(), before, strict=True):
        if not has_spare:
            worker.rlimit(psutil.RLIMIT_NOFILE, (number, number))
    for _ in range(6):
        (output,) = engine.generate([prompt], params)
        assert output.outputs[0].token_ids == expected.outputs[0].token_ids
        assert np.abs(output.prompt_probe.cross_attention - expected.prompt_probe.cross_attention).max() < 1e-5
    assert [worker.num_fds() for worker in workers()] == before
    engine.close()


def survive_a_kill(rng: random.Random, expected: dict[str, list[int]], sizes: dict[str, int], victim: int) -> int:
    """Run requests, of which a worker is killed in the middle. Returns how many failed."""
    engine = make(**sizes)
    killed = workers()[victim % len(workers())]
    for word in WORDS:
        engine.add_request(word, word, LONG)
    num_steps, reached = rng.randrange(KILLED_BEFORE), threading.Event()

    def kill() -> None:  # beside the steps, at any moment of one
        reached.wait()
        killed.send_signal(signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    begin = time.monotonic()
    finished: dict[str, RequestOutput] = {}
    for step in range(KILLED_BEFORE):
        if step == num_steps:
            reached.set()
        finished |= {output.request_id: output for output in engine.step() if output.finished}
    killer.join()
    finished |= run(engine)
    assert time.monotonic() - begin < WORST_SECONDS
    assert sorted(finished) == sorted(WORDS)
    for word, output in finished.items():
        if output.error is None:
            assert output.outputs[0].token_ids == expected[word]
        else:
            assert isinstance(output.error, EngineClosedError)
    wait_until(lambda: not workers())
    assert_refuses(engine, "was ended by SIGKILL, and the engine has stopped; make another one")
    engine.close()
    return sum(output.error is not None for output in finished.values())


@pytest.mark.parametrize(
    ("exchange", "kills", "sizes"),
    [
        ("memory", 2, {}),
        pytest.param("memory", 50, {}, marks=SLOW),
        pytest.param("memory", 40, STAGES_OF_TWO, marks=SLOW),
        pytest.param("gloo", 10, {}, marks=SLOW),
        pytest.param("gloo", 8, STAGES_OF_TWO, marks=SLOW),
    ],
    ids=named,
)
def test_a_worker_is_killed_at_any_moment(
    exchange: str, kills: int, sizes: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them in turn."""
    monkeypatch.setenv("TRANSEPT_EXCHANGE", exchange)
    rng = random.Random(3)
    reference = Engine(CHECKPOINT, device="cpu", kv_cache_bytes=1 << 24)
    expected = {word: reference.generate(word, LONG)[0].outputs[0].token_ids for word in WORDS}
    failures = [survive_a_kill(rng, expected, sizes, victim) for victim in range(kills)]
    assert all(failures)


@pytest.mark.parametrize("stage", [pytest.param(0, marks=SLOW), 1])
def test_a_stage_is_killed_while_steps_are_under_way(stage: int) -> None:
    engine = make(**STAGES)
    for word in WORDS:
        engine.add_request(word, word, LONG)
    engine.step()
    workers()[stage].kill()
    finished = run(engine)
    assert sorted(finished) == sorted(WORDS)
    assert all(isinstance(output.error, EngineClosedError) for output in finished.values())
    assert_refuses(engine, rf"rank {stage} of 2 \(process \d+\) was ended by SIGKILL")
    engine.close()


def start_and_ask(killer: threading.Thread) -> None:
    """Start an engine, and where it has started before a worker was killed, ask it something."""
    engine = make()
    killer.join()
    engine.generate(WORDS[0], GREEDY)


@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=SLOW)])
def test_a_worker_is_killed_while_it_starts(kills: int) -> None:
    rng = random.Random(kills)
    begin = time.monotonic()
    make().close()
    seconds = time.monotonic() - begin

    for _ in range(kills):

        def kill() -> None:
            wait_until(lambda: len(workers()) == 2)
            time.sleep(rng.uniform(0, 0.6 * seconds))  # while it still starts, on fast processors, too
            rng.choice(workers()).kill()

        killer = threading.Thread(target=kill)
        killer.start()
        with pytest.raises(TranseptError, match="was ended by SIGKILL"):
            start_and_ask(killer)
        killer.join()
        assert not workers()


@pytest.mark.parametrize(
    ("rank", "sizes"),
    [(1, {}), *(pytest.param(rank, sizes, marks=SLOW) for rank, sizes in ((0, {}), (0, STAGES), (1, STAGES)))],
    ids=named,
)
def test_a_worker_that_stands_still_ends_every_request(rank: int, sizes: dict[str, int]) -> None:
    engine = make(**sizes)
    for word in WORDS:
        engine.add_request(word, word, GREEDY)
    engine.step()
    workers()[rank].suspend()
    begin = time.monotonic()
    finished = run(engine)
    assert time.monotonic() - begin < WORST_SECONDS
    assert all(isinstance(output.error, EngineClosedError) for output in finished.values())
    assert_refuses(engine, rf"rank {rank} of 2 \(process \d+\) has sent no heartbeat for 6 s")
    engine.close()


@dataclass(frozen=True)
class Sleeps:
    """A logits processor that never returns."""

    def __call__(self, logits: Any, rows: Any) -> None:
        time.sleep(3600)


@dataclass(frozen=True)
class Spins:
    """A logits processor that never returns, and keeps its processor busy."""

    def __call__(self, logits: Any, rows: Any) -> None:
        while True:
            pass


@pytest.mark.parametrize(
    ("processor", "options", "complaint"),
    [
        pytest.param(
            *(Spins(), {"worker_timeout": 2}, r"has computed for 2 s \(worker_timeout\) without progress"), marks=SLOW
        ),
        pytest.param(Spins(), {}, r"has computed for 8 s \(worker_timeout\) without progress", marks=SLOW),
        (Sleeps(), {}, r"has a step to compute, and has not computed for 7 s"),
        pytest.param(
            Sleeps(), STAGES, r"rank 1 of 2 .* has a step to compute, and has not computed for 7 s", marks=SLOW
        ),
    ],
    ids=["spins", "spins by default", "sleeps", "sleeps in the last stage"],
)
def test_a_worker_that_does_not_get_on_ends_every_request(processor: Any, options: Any, complaint: str) -> None:
    engine = make(**options)
    engine.add_request("good", WORDS[0], GREEDY)
    engine.add_request("stuck", WORDS[1], replace(GREEDY, logits_processors=(processor,)))
    begin = time.monotonic()
    finished = run(engine)
    if not isinstance(processor, Spins):  # whose limit is of processor time
        assert time.monotonic() - begin < WORST_SECONDS
    assert isinstance(finished["stuck"].error, EngineClosedError)
    assert_refuses(engine, complaint)
    engine.close()


@pytest.mark.sampled(2)
@dataclass(frozen=True)
class BreaksTheDevice:
    """A logits processor after which a GPU computes nothing more, once a row has three tokens."""

    def __call__(self, logits: Any, rows: Any) -> None:
        if any(len(row.output_token_ids) == 3 for row in rows):
            raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered\nand advice")


@pytest.mark.parametrize("sizes", [{}, STAGES], ids=named)
def test_a_device_that_fails_ends_every_request_with_the_reason(sizes: dict[str, int]) -> None:
    reason = "the device cpu has failed, .*: CUDA error: an illegal memory access was encountered"
    engine = make(**sizes)
    for word in WORDS[1:]:
        engine.add_request(word, word, LONG)
    engine.add_request(WORDS[0], WORDS[0], replace(LONG, logits_processors=(BreaksTheDevice(),)))
    for output in run(engine).values():
        assert isinstance(output.error, EngineDeadError)
        assert re.search(reason, str(output.error))
    assert_refuses(engine, reason)
    engine.close()


@dataclass(frozen=True)
class Raises:
    """A logits processor that raises, once a row has three tokens."""

    def __call__(self, logits: Any, rows: Any) -> None:
        if any(len(row.output_token_ids) == 3 for row in rows):
            raise ValueError("this processor is broken")


@dataclass(frozen=True)
class Forbids:
    """A logits processor that leaves one token."""

    token: int

    def __call__(self, logits: Any, rows: Any) -> None:
        kept = logits[:, self.token].clone()
        logits.fill_(float("-inf"))
        logits[:, self.token] = kept


@dataclass(frozen=True)
class OneMore:
    """A function of tokens that allows one token: the number of the earlier ones, and `first`."""

    first: int

    def __call__(self, tokens: list[int]) -> list[int]:
        return [self.first + len(tokens)]


def unknown_to_workers() -> Any:
    """A logits processor that pickles, of a module that workers cannot import."""
    module = sys.modules["only_here"] = types.ModuleType("only_here")
    call = {"__module__": "only_here", "__call__": lambda processor, logits, rows: None}
    module.Processor = type("Processor", (), call)
    return module.Processor()


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("exchange", "sizes"),
    [
        ("memory", {}),
        ("gloo", {}),
        ("memory", STAGES),
        pytest.param("memory", STAGES_OF_TWO, marks=SLOW),
        pytest.param("gloo", STAGES_OF_TWO, marks=SLOW),
    ],
    ids=named,
)
def test_requests_fail_alone_and_close_ends_all(
    exchange: str, sizes: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRANSEPT_EXCHANGE", exchange)
    engine = make(**sizes)
    reference = Engine(CHECKPOINT, device="cpu", kv_cache_bytes=1 << 24)
    broken = {"raises": (Raises(),), "lambda": (lambda logits, rows: None,), "elsewhere": (unknown_to_workers(),)}
    for word in WORDS:
        engine.add_request(word, word, GREEDY)
    for name, processors in broken.items():
        engine.add_request(name, WORDS[0], replace(GREEDY, logits_processors=processors))
    engine.add_request("forbids", WORDS[0], replace(GREEDY, logits_processors=(Forbids(7),)))
    engine.add_request("allows", WORDS[0], replace(GREEDY, allowed_next_tokens=OneMore(20)))
    engine.add_request("local", WORDS[0], replace(GREEDY, allowed_next_tokens=lambda tokens: [7]))
    finished = run(engine)
    for word in WORDS:
        assert finished[word].outputs[0].token_ids == reference.generate(word, GREEDY)[0].outputs[0].token_ids
    assert "this processor is broken" in str(finished["raises"].error)
    assert isinstance(finished["lambda"].error, ParameterError)
    assert "logits_processors must pickle" in str(finished["lambda"].error)
    assert "No module named 'only_here'" in str(finished["elsewhere"].error)
    assert set(finished["forbids"].outputs[0].token_ids[:9]) == {7}
    allowed = finished["allows"].outputs[0].token_ids[:9]
    assert allowed == [20 + len(finished["allows"].prompt_token_ids) + place for place in range(len(allowed))]
    assert "allowed_next_tokens must pickle" in str(finished["local"].error)
    for word in WORDS:
        engine.add_request(word, word, LONG)
    engine.step()
    engine.close()
    assert not workers()
    assert all("closed" in str(output.error) for output in run(engine).values())
    engine.close()


def test_workers_that_did_not_receive_a_step_are_told_all_of_the_next_one() -> None:
    engine = make()
    for word in WORDS[:3]:
        engine.add_request(word, word, LONG)
    for _ in range(5):
        engine.step()
    unsendable = Encode(0, EncoderInputs(None, [], 1, {"features": lambda: None}), [0])
    with pytest.raises((pickle.PicklingError, AttributeError)):
        engine.executor.issue(StepInput([unsendable], [group.metadata for group in engine.scheduler.running]))
    finished = run(engine)
    reference = Engine(CHECKPOINT, device="cpu", kv_cache_bytes=1 << 24)
    for word in WORDS[:3]:
        assert finished[word].outputs[0].token_ids == reference.generate(word, LONG)[0].outputs[0].token_ids
    engine.close()


def test_a_process_that_was_forked_leaves_the_workers_alone() -> None:
    engine = make()
    child = os.fork()
    if not child:
        try:
            engine.close()  # of the copy: nothing
        except ForkedProcessError:
            os._exit(2)
        try:
            engine.executor.check_open()
        except ForkedProcessError:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(engine.generate(WORDS[0], GREEDY)[0].outputs[0].token_ids) > 2
    engine.close()


@SLOW
def test_an_engine_that_nobody_holds_ends_its_workers() -> None:
    engine = make()
    assert len(workers()) == 2
    del engine
    import gc

    gc.collect()
    wait_until(lambda: not workers())


SCRIPT = textwrap.dedent(
    """
    import sys, time
    from transept import Engine, SamplingParams
    class Own:
        def __call__(self, logits, rows): pass
    engine = Engine(sys.argv[1], device="cpu", tensor_parallel_size=2, kv_cache_bytes=1 << 24)
    text = engine.generate("nave", SamplingParams(temperature=0.0))[0].outputs[0].text
    try:
        engine.generate("nave", SamplingParams(temperature=0.0, logits_processors=[Own()]))
    except Exception as error:
        text += " / " + str(error)
    print(text, flush=True)
    if sys.argv[2] == "works":
        engine.generate(["nave"] * 1000, SamplingParams(temperature=0.0, max_tokens=60, ignore_eos=True))
    if sys.argv[2] != "ends":
        time.sleep(3600)
    """
)


@pytest.mark.parametrize("how", ["works", pytest.param("waits", marks=SLOW), pytest.param("ends", marks=SLOW)])
def test_workers_go_with_the_process_that_started_them(tmp_path: Path, how: str) -> None:
    """A script that runs an engine without a guard: it is run once. It ends, or is killed, idle or not."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(CHECKPOINT), how]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "Own is defined in the script itself" in line
        started = workers(psutil.Process(process.pid))
        if how == "ends":
            assert process.stdout.read() == ""
            assert process.wait(WORST_SECONDS) == 0
        else:
            assert len(started) == 2
            groups = {os.getpgid(each.pid) for each in started}  # a terminal's Ctrl-C goes to the script's alone
            assert os.getpgid(process.pid) not in groups
            process.kill()
    _, alive = psutil.wait_procs(started, timeout=WORST_SECONDS)
    assert not alive


def test_sizes_that_do_not_fit_are_told_before_anything_starts() -> None:
    with pytest.raises(ParameterError, match=r"tensor_parallel_size=3 does not divide .*tensor_parallel_size: 1, 2, 4"):
        Engine(CHECKPOINT, device="cpu", tensor_parallel_size=3)
    for size in (0, -1, 1.5, True):
        with pytest.raises(ParameterError, match="tensor_parallel_size must be an integer of at least 1"):
            Engine(CHECKPOINT, tensor_parallel_size=size)
    for seconds in (0, float("nan"), "1"):
        with pytest.raises(
            ParameterError, match="worker_timeout must be a number of at least 1 and at most 86400, not"
        ):
            Engine(CHECKPOINT, worker_timeout=seconds)


@SLOW
def test_a_checkpoint_that_workers_refuse_is_an_error_of_its_own(tmp_path: Path) -> None:
    for file in CHECKPOINT.iterdir():
        if file.name != "model.safetensors":
            (tmp_path / file.name).symlink_to(file)
    whole = (CHECKPOINT / "model.safetensors").read_bytes()
    (tmp_path / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(TranseptError, match="truncated or corrupt"):
        Engine(tmp_path, device="cpu", tensor_parallel_size=2)
    assert not workers()
