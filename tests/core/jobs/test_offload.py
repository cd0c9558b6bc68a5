"""Functions beside the engine: steps go before those that take long, and the next function has a thread as before."""

import hashlib
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from transept.core.engine import Engine
from transept.core.jobs.job import Job, Offload, Submit
from transept.core.jobs.offload import LONG_SECONDS, NICENESS, OffloadPool
from transept.core.jobs.runner import OFFLOAD_THREADS
from transept.core.jobs.thread_priority import LEAST_PRIORITY
from transept.core.request.prompts import Request
from transept.core.request.sampling_params import SamplingParams

MEGABYTE = bytes(1 << 20)
GREEDY = SamplingParams(temperature=0, max_tokens=8)
USUAL = NICENESS + (os.getpriority(os.PRIO_PROCESS, os.getpid()) if sys.platform == "linux" else 0)
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has priorities of threads"),
    pytest.mark.skipif(USUAL >= LEAST_PRIORITY, reason="the tests run at a low priority themselves"),
]


def niceness() -> int:
    """Return the niceness of the calling thread."""
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def compute(seconds: float) -> int:
    """Take so much processor time, beside which others run Python; returns the thread's niceness then."""
    begin = time.thread_time()
    while time.thread_time() - begin < seconds:
        hashlib.sha256(MEGABYTE).digest()
    return niceness()


def compute_long() -> int:
    return compute(2 * LONG_SECONDS)


def compute_until_lowered() -> int:
    """Take processor time until the thread's priority is lowered, however long its pool is kept from looking at it.

    That is not to be before LONG_SECONDS. Returns the thread's niceness then, or after a minute.
    """
    begin = time.thread_time()
    while niceness() != LEAST_PRIORITY and time.thread_time() - begin < 60:
        hashlib.sha256(MEGABYTE).digest()
    assert time.thread_time() - begin > LONG_SECONDS
    return niceness()


def looked_at(pool: OffloadPool, function: Callable[[], int], steps_wait: bool) -> int:
    """Return the result of a function, while the pool is looked at again and again, as between steps."""
    work = pool.submit(function)
    while not work.done():
        pool.relieve(steps_wait)
        time.sleep(0.01)
    return int(work.take()[0])


def test_a_long_running_function_has_the_lowest_priority_and_the_next_one_has_not() -> None:
    pool = OffloadPool(1)
    assert looked_at(pool, compute_until_lowered, steps_wait=True) == LEAST_PRIORITY
    assert looked_at(pool, niceness, steps_wait=True) == USUAL
    assert len(pool.threads) == 1


def test_where_no_step_waits_no_priority_is_lowered() -> None:
    pool = OffloadPool(1)
    assert looked_at(pool, compute_long, steps_wait=False) == USUAL


def test_what_waits_for_such_a_thread_is_called() -> None:
    pool = OffloadPool(1)
    first, second = pool.submit(compute_long, long_running=True), pool.submit(niceness)
    while not second.done():
        pool.relieve(steps_wait=True)
        time.sleep(0.01)
    assert (first.take(), second.take()) == ((LEAST_PRIORITY, None), (USUAL, None))


def test_slow_functions_delay_no_others() -> None:
    """Slow functions keep all threads of their pool busy until another job's function, which comes later, is called."""
    engine = Engine(Path(__file__).parents[2] / "data" / "cmudict" / "t5-g2p")
    over = threading.Event()

    def compute_until_over() -> bool:
        begin = time.thread_time()
        while not over.is_set() and time.thread_time() - begin < 20:
            hashlib.sha256(MEGABYTE).digest()
        return over.is_set()

    def slow() -> Job:
        return (yield Offload(compute_until_over, slow=True))

    def quick() -> Job:
        return (yield Offload(over.set))

    jobs = [*(slow() for _ in range(OFFLOAD_THREADS)), quick()]
    assert dict(engine.runner.run(jobs, max_jobs=8)) == {0: True, 1: True, 2: None}


def test_a_job_that_has_taken_long_beside_steps_keeps_the_lowest_priority() -> None:
    engine = Engine(Path(__file__).parents[2] / "data" / "cmudict" / "t5-g2p")
    over = threading.Event()

    def long_job() -> Job:
        yield Offload(compute_until_lowered)
        found = yield Offload(niceness)
        over.set()
        return found

    def steps() -> Job:
        while not over.is_set():
            yield Submit([Request("word", GREEDY)])
        return (yield Offload(niceness))

    assert dict(engine.runner.run([long_job(), steps()], max_jobs=2)) == {0: LEAST_PRIORITY, 1: USUAL}
