"""Urgent jobs: their requests start before all others that wait, and their functions have separate threads."""

import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE

from transept import Engine, SamplingParams
from transept.core.jobs.job import Offload, Submit, Wait
from transept.core.jobs.offload import NICENESS
from transept.core.jobs.urgent import urgent
from transept.core.request.prompts import Request
from transept.errors import ParameterError


@pytest.fixture(scope="module")
def engine() -> Engine:
    """It runs one request at a time."""
    return Engine(Path(__file__).parents[2] / "data" / "cmudict" / "t5-g2p", max_num_seqs=1)


def asks(*words: str) -> Any:
    requests = [Request(f"g2p: {word}", SamplingParams(temperature=0.0, max_tokens=4)) for word in words]
    return [output.outputs[0].text for output in (yield Submit(requests))]


def test_an_urgent_request_overtakes_those_that_wait(engine: Engine) -> None:
    words = ["one", "two", "three", "four", "five"]
    events = list(engine.runner.run([asks(*words), asks("six"), urgent(asks("seven"))], max_jobs=3))
    assert [index for index, _ in events] == [2, 0, 1]
    alone = dict(engine.runner.run([asks(*words), asks("six"), asks("seven")], 1))
    assert dict(events) == alone


def test_urgent_requests_keep_their_order(engine: Engine) -> None:
    jobs = [asks("one", "two", "three"), *(urgent(asks(word)) for word in ("four", "five", "six"))]
    assert [index for index, _ in engine.runner.run(jobs, max_jobs=4)] == [1, 2, 3, 0]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a niceness of each thread")
def test_urgent_functions_wait_for_no_others_and_have_the_priority_of_the_engine(engine: Engine) -> None:
    release = threading.Event()

    def works() -> Any:
        return (yield Offload(lambda: release.wait(PATIENCE)))

    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) - os.getpriority(os.PRIO_PROCESS, os.getpid())

    def asks_for_niceness() -> Any:
        found = yield Offload(niceness)
        release.set()
        return found

    jobs = [works(), works(), works(), urgent(asks_for_niceness())]
    events = dict(engine.runner.run(jobs, max_jobs=4))
    assert events[3] == 0
    assert dict(engine.runner.run([asks_for_niceness()], 1))[0] in (0, NICENESS)  # the system may forbid it


def test_an_urgent_job_gets_errors_and_is_closed_like_others(engine: Engine) -> None:
    closed: list[str] = []

    def hardy() -> Any:
        try:
            with pytest.raises(ParameterError):
                yield Wait()
            with pytest.raises(ZeroDivisionError):
                yield Offload(lambda: 1 / 0)
            yield "an event"
            yield Offload(lambda: None)
        finally:
            closed.append("closed")

    events = engine.runner.run([urgent(hardy())], 1)
    assert next(events) == (0, "an event")
    events.close()
    assert closed == ["closed"]
    assert not engine.has_unfinished_requests
