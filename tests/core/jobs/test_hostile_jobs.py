"""Jobs and processors that misbehave on purpose: each ends alone, in its own thread, and whoever shares the engine with
it goes on."""

import dataclasses
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE

from transept import Engine, RequestOutput, SamplingParams
from transept.core.jobs.job import Channel, Gather, Offload, Submit, Wait
from transept.core.jobs.tasks import MAX_DEPTH
from transept.core.request.prompts import Request
from transept.errors import ParameterError, RequestFailedError

CHECKPOINT = Path(__file__).parents[2] / "data" / "cmudict" / "t5-g2p"
WORDS = ["g2p: engine", "g2p: transept", "g2p: window"]
GREEDY = SamplingParams(temperature=0.0, max_tokens=12)


class UnspeakableError(Exception):
    """Whose message cannot be made."""

    def __str__(self) -> str:
        raise ValueError("no message")


class Proxy:
    """An object that cannot be asked for its class."""

    @property
    def __class__(self) -> type:
        raise RuntimeError("unbound proxy")


class TwiceRead(list):
    """A list that can be iterated over once."""

    reads = 0

    def __iter__(self) -> Iterator[Any]:
        self.reads += 1
        if self.reads > 1:
            raise ValueError("second reading")
        return super().__iter__()


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(CHECKPOINT)


@pytest.fixture(autouse=True)
def nothing_is_left_behind(engine: Engine) -> Iterator[None]:
    yield
    assert not engine.has_unfinished_requests
    assert engine.block_manager.num_free_device_blocks == engine.block_manager.num_device_blocks


@pytest.fixture(scope="module")
def expected(engine: Engine) -> list[str]:
    return texts(engine.generate(WORDS, GREEDY, progress=False))


def texts(outputs: list[RequestOutput]) -> list[str]:
    return [output.outputs[0].text for output in outputs]


def good() -> Any:
    return texts((yield Submit([Request(word, GREEDY) for word in WORDS])))


def result(engine: Engine, job: Any) -> Any:
    """What a run of one job comes to: its result, or its error."""
    try:
        ((_, event),) = engine.runner.run([job], max_jobs=1)
    except Exception as error:
        return error
    return event


def raises(error: BaseException) -> Callable[[Any, Any], None]:
    def processor(logits: Any, rows: Any) -> None:
        if any(len(row.output_token_ids) == 3 for row in rows):
            raise error

    return processor


def request(error: BaseException) -> SamplingParams:
    return dataclasses.replace(GREEDY, logits_processors=[raises(error)], ignore_eos=True)


@pytest.mark.parametrize("length", [10, 10**7])
def test_an_exception_without_a_message_or_with_an_endless_one_ends_its_request(
    engine: Engine, expected: list[str], length: int
) -> None:
    error = UnspeakableError() if length == 10 else ValueError("\x1b" * length)
    for index, word in enumerate(WORDS):
        engine.add_request(f"good {index}", word, GREEDY)
    engine.add_request("bad", WORDS[0], request(error))
    outputs: dict[str, RequestOutput] = {}
    while engine.has_unfinished_requests:
        outputs |= {output.request_id: output for output in engine.step()}
    assert isinstance(outputs["bad"].error, RequestFailedError)
    assert len(str(outputs["bad"].error)) < 1200
    assert texts([outputs[f"good {index}"] for index in range(len(WORDS))]) == expected


@pytest.mark.parametrize("error", [SystemExit(7), KeyboardInterrupt(), GeneratorExit()], ids=lambda e: type(e).__name__)
def test_a_processor_that_exits_is_raised_once_and_ends_its_request(
    engine: Engine, expected: list[str], error: BaseException
) -> None:
    """In the main thread it may be a signal's, which the program is to see."""
    for index, word in enumerate(WORDS):
        engine.add_request(f"good {index}", word, GREEDY)
    engine.add_request("bad", WORDS[0], request(error))
    outputs: dict[str, RequestOutput] = {}
    interruptions = 0
    while engine.has_unfinished_requests:
        try:
            outputs |= {output.request_id: output for output in engine.step()}
        except type(error):
            interruptions += 1
    assert interruptions == 1
    assert type(error).__name__ in str(outputs["bad"].error)
    assert texts([outputs[f"good {index}"] for index in range(len(WORDS))]) == expected


def test_a_processor_that_exits_in_another_thread_is_nobodys_interruption(engine: Engine, expected: list[str]) -> None:
    def asks() -> Any:
        yield Submit([Request(WORDS[0], request(SystemExit(7)))])

    with ThreadPoolExecutor(5) as pool:
        innocents = [pool.submit(result, engine, good()) for _ in range(4)]
        guilty = pool.submit(result, engine, asks())
        assert [each.result(PATIENCE) for each in innocents] == [expected] * 4
        assert isinstance(guilty.result(PATIENCE), RequestFailedError)


def changed_list() -> Any:
    requests: list[Any] = [Request(WORDS[0], GREEDY)]
    submit = Submit(requests)
    requests.append(5)
    return texts((yield submit))


def yields(make: Callable[[], Any]) -> Any:
    return (yield make())


def exits() -> Any:
    yield 1
    raise KeyboardInterrupt


HOSTILE = {
    "gathers a number": (lambda: yields(lambda: Gather(5)), ParameterError),  # type: ignore[arg-type]
    "gathers None": (lambda: yields(lambda: Gather([None])), ParameterError),  # type: ignore[list-item]
    "a proxy as event": (lambda: yields(Proxy), RuntimeError),
    "requests that are read once": (lambda: yields(lambda: Submit(TwiceRead([Request(WORDS[0], GREEDY)]))), list),
    "a list that changes": (changed_list, list),
    "waits for nothing": (lambda: yields(Wait), ParameterError),
    "interrupts itself": (exits, RequestFailedError),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_job_ends_in_its_own_thread(engine: Engine, expected: list[str], kind: str) -> None:
    make, outcome = HOSTILE[kind]

    def last(job: Any) -> Any:
        try:
            return [event for _, event in engine.runner.run([job], max_jobs=1)][-1]
        except Exception as error:
            return error

    with ThreadPoolExecutor(4) as pool:
        innocents = [pool.submit(last, good()) for _ in range(3)]
        guilty = pool.submit(last, make())
        assert [each.result(PATIENCE) for each in innocents] == [expected] * 3
        assert isinstance(guilty.result(PATIENCE), outcome)


def endless() -> Any:
    yield Gather([endless()])


def broad() -> Any:
    yield Gather(broad() for _ in range(3))


def nested(depth: int) -> Any:
    if depth:
        ((deeper,),) = ((yield Gather([nested(depth - 1)])),)
        return deeper + 1
    yield "the bottom"
    return 0


@pytest.mark.parametrize("job", [endless, broad])
def test_jobs_that_gather_without_end_are_refused_and_others_go_on(
    engine: Engine, expected: list[str], job: Callable[[], Any]
) -> None:
    assert dict(engine.runner.run([good()], 1)) == {0: expected}
    outcomes: dict[int, Any] = {}
    events = engine.runner.run([job(), good()], max_jobs=2)
    for index, event in events:
        outcomes[index] = event
        if index == 1:
            break  # what gathers on and on may take its time
    events.close()
    assert outcomes[1] == expected
    assert isinstance(outcomes.get(0, ParameterError("")), ParameterError)


def test_jobs_gather_jobs_so_deep_and_no_deeper(engine: Engine, expected: list[str]) -> None:
    assert result_of(engine, nested(MAX_DEPTH)) == MAX_DEPTH
    assert isinstance(result_of(engine, nested(1000)), ParameterError)
    assert result(engine, good()) == expected


def result_of(engine: Engine, job: Any) -> Any:
    return [event for _, event in engine.runner.run([job], max_jobs=1)][-1]


def test_none_among_jobs_is_no_end(engine: Engine, expected: list[str]) -> None:
    with pytest.raises(ParameterError, match="a job is a generator"):
        list(engine.runner.run([None, good()], max_jobs=2))  # type: ignore[list-item]
    assert isinstance(result(engine, yields(lambda: Gather([None, good()]))), ParameterError)  # type: ignore[list-item]


@pytest.mark.skipif(sys.platform != "linux", reason="needs the processor time of a thread")
def test_functions_that_wait_for_ever_leave_room_for_others(engine: Engine, expected: list[str]) -> None:
    release = threading.Event()

    def waits() -> Any:
        return (yield Offload(release.wait))

    def offloads() -> Any:
        return (yield Offload(lambda: "done"))

    channels = [engine.runner.submit(waits()) for _ in range(5)]
    try:
        assert result(engine, offloads()) == "done"
        assert result(engine, good()) == expected
    finally:
        release.set()
    assert [engine.runner.read(channel) for channel in channels] == [(0, True)] * 5


@pytest.mark.slow
def test_functions_that_compute_do_not_get_more_threads(engine: Engine) -> None:
    at_once: list[int] = []
    lock, running = threading.Lock(), [0]

    def computes() -> None:
        with lock:
            running[0] += 1
            at_once.append(running[0])
        end = time.thread_time() + 1.5
        while time.thread_time() < end:
            sum(range(1000))
        with lock:
            running[0] -= 1

    fresh = Engine(CHECKPOINT)
    list(fresh.runner.run([yields(lambda: Offload(computes)) for _ in range(4)], max_jobs=4))
    assert max(at_once) == 2


@pytest.mark.parametrize(
    "call",
    [
        lambda runner: list(runner.run(None, 4)),
        lambda runner: list(runner.run([], 4, max_requests="x")),
        lambda runner: list(runner.run([], 4, max_requests=0)),
        lambda runner: list(runner.run([], 4, max_requests=float("nan"))),
        lambda runner: runner.read(5),
        lambda runner: runner.close(5),
        lambda runner: runner.submit(good(), 5),
        lambda runner: Submit(Request(WORDS[0], GREEDY)),
        lambda runner: Submit([5]),
    ],
)
def test_arguments_of_a_wrong_type_are_refused(engine: Engine, call: Callable[[Any], Any]) -> None:
    with pytest.raises(ParameterError):
        call(engine.runner)
    assert isinstance(Channel().unfinished, set)
