"""Jobs that sleep until another thread sets a signal: they cost nothing meanwhile, and miss no signal."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE

from transept import Engine, SamplingParams, Signal
from transept.core.jobs.job import Channel, Gather, Submit
from transept.core.request.prompts import Request
from transept.errors import ParameterError

GREEDY = SamplingParams(temperature=0.0, max_tokens=12)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(Path(__file__).parents[2] / "data" / "cmudict" / "t5-g2p")


@pytest.fixture(autouse=True)
def nothing_is_left_behind(engine: Engine) -> Iterator[None]:
    yield
    assert not engine.has_unfinished_requests
    assert not engine.runner.tasks.listening


def waits(signal: Signal, times: int) -> Any:
    for number in range(times):
        yield signal
        yield number
    return times


def asks(word: str) -> Any:
    (output,) = yield Submit([Request(word, GREEDY)])
    return output.outputs[0].text


def test_a_signal_that_is_set_before_resumes_a_job_once(engine: Engine) -> None:
    signal = Signal()
    signal.set()
    signal.set()
    channel = engine.runner.submit(waits(signal, 2))
    assert engine.runner.read(channel) == (0, 0)
    threading.Timer(0.05, signal.set).start()
    assert engine.runner.read(channel) == (0, 1)
    assert engine.runner.read(channel) == (0, 2)


def test_a_waiting_job_takes_hardly_any_processor_time(engine: Engine) -> None:
    signal = Signal()
    channel = engine.runner.submit(waits(signal, 1))
    threading.Timer(0.5, signal.set).start()
    begin = time.thread_time()
    assert engine.runner.read(channel) == (0, 0)
    assert time.thread_time() - begin < 0.25
    assert engine.runner.read(channel) == (0, 1)


def test_other_jobs_go_on_beside_a_waiting_one(engine: Engine) -> None:
    signal = Signal()

    def both() -> Any:
        def setter() -> Any:
            text = yield from asks("g2p: engine")
            signal.set()
            return text

        return (yield Gather([waits(signal, 1), setter()]))

    (*_, (_, result)) = engine.runner.run([both()], max_jobs=1)
    assert result[0] == 1
    assert result[1] == engine.generate("g2p: engine", GREEDY, progress=False)[0].outputs[0].text


def test_a_closed_job_forgets_its_signal(engine: Engine) -> None:
    signal = Signal()
    channel = engine.runner.submit(waits(signal, 1))
    engine.runner.close(channel)
    signal.set()
    other = engine.runner.submit(waits(signal, 1))  # the signal counts for the next job that waits
    assert engine.runner.read(other) == (0, 0)
    assert engine.runner.read(other) == (0, 1)


def test_a_job_that_is_closed_after_it_was_resumed_forgets_no_other_job() -> None:
    signal, resumed = Signal(), list[str]()

    def first() -> None:
        resumed.append("first")

    assert signal.listen(first)
    signal.set()
    assert signal.listen(lambda: resumed.append("second"))
    signal.forget(first)
    signal.set()
    assert resumed == ["first", "second"]


def test_one_job_waits_for_a_signal_at_a_time(engine: Engine) -> None:
    signal = Signal()
    channel = engine.runner.submit(waits(signal, 1))
    refused = engine.runner.submit(waits(signal, 1))
    _, error = engine.runner.read(refused)
    assert isinstance(error, ParameterError)
    signal.set()
    assert engine.runner.read(channel) == (0, 0)
    assert engine.runner.read(channel) == (0, 1)


def test_a_refused_job_that_goes_on_does_not_make_the_other_one_forget_the_signal(engine: Engine) -> None:
    signal = Signal()

    def goes_on() -> Any:
        with pytest.raises(ParameterError):
            yield signal
        yield "refused"
        yield Submit([Request("g2p: engine", GREEDY)])

    channel = engine.runner.submit(waits(signal, 1))
    refused = engine.runner.submit(goes_on())
    assert engine.runner.read(refused) == (0, "refused")
    engine.runner.close(refused)
    signal.set()
    assert engine.runner.read(channel) == (0, 0)
    assert engine.runner.read(channel) == (0, 1)


def test_signals_from_many_threads_reach_the_thread_that_drives(engine: Engine) -> None:
    signals = [Signal() for _ in range(20)]
    channel = Channel()
    for index, signal in enumerate(signals):
        engine.runner.submit(waits(signal, 3), channel, index)

    def set_all() -> None:
        deadline = time.monotonic() + PATIENCE
        while channel.unfinished and time.monotonic() < deadline:
            for signal in signals:
                signal.set()
            time.sleep(0.001)

    threads = [threading.Thread(target=set_all) for _ in range(3)]
    for thread in threads:
        thread.start()
    events = []
    while not channel.ended:
        events.append(engine.runner.read(channel))
    for thread in threads:
        thread.join()
    for index in range(20):
        assert [event for each, event in events if each == index] == [0, 1, 2, 3]
