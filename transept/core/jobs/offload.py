"""OffloadPool: a few threads that run jobs' functions concurrently with the engine. Used by `jobs.runner`."""

from __future__ import annotations

import atexit
import math
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from transept.core.jobs.thread_priority import raise_niceness, set_lowest_priority
from transept.core.jobs.tracebacks import release_frames
from transept.core.kernels.openmp import end_openmp_threads

MOST_THREADS = 64  # including threads that wait, such as for a pipe
STUCK_SECONDS = 1.0  # a thread without any processor time for so long is waiting, and does not count as computing
LONG_SECONDS = 0.1  # of processor time; a function that takes longer while steps wait is long-running
GRACE_SECONDS = 5.0  # that the exit of the process waits for running functions
NICENESS = 10  # of a thread, above the process's: a tenth of the engine's share of a contended core

_pools: weakref.WeakSet[OffloadPool] = weakref.WeakSet()


def has_threads() -> bool:
    """Return True if any pool has threads."""
    return any(pool.threads for pool in _pools)


@dataclass
class Outcome:
    """The result of a function, or its error."""

    result: Any = None
    error: BaseException | None = None


class Offloaded(Future[Outcome]):
    """A function that another thread runs. Its result is an Outcome, even if the function raises.

    long_running: True once it has taken so much processor time that it gets the lowest priority.
    """

    def __init__(self, function: Callable[[], Any], long_running: bool) -> None:
        super().__init__()
        self.function: Callable[[], Any] | None = function  # until it is called
        self.long_running = long_running

    def take(self) -> tuple[Any, BaseException | None]:
        """Return the function's result or error as (result, None) or (None, error), and drop the references to both."""
        outcome = self.result()
        taken = outcome.result, outcome.error
        outcome.result = outcome.error = None
        return taken


class OffloadPool:
    """Calls functions in threads, which start on demand and end with the pool.

    num_threads: number of threads that compute at a time. On systems that report a thread's processor time, the pool
    starts further threads, up to MOST_THREADS, while others only wait, such as for a pipe without a writer.
    niceness: of the threads, above the process's.

    Unlike ThreadPoolExecutor's threads, these are daemons: a function that waits forever delays the exit of the
    process by at most GRACE_SECONDS.
    """

    def __init__(self, num_threads: int, niceness: int = NICENESS) -> None:
        self.num_threads, self.niceness = num_threads, niceness
        self._queue: SimpleQueue[Offloaded | None] = SimpleQueue()
        self.threads: list[_Thread] = []
        self._looked = 0.0  # time.monotonic of the last check of `relieve`
        self._seconds: dict[_Thread, float] = {}  # processor time of each thread at that check
        self.end = weakref.finalize(self, _end, self._queue, self.threads)
        _pools.add(self)

    def runs_this_thread(self) -> bool:
        """Return True if the calling thread belongs to the pool."""
        return threading.current_thread() in self.threads

    def submit(self, function: Callable[[], Any], long_running: bool = False) -> Offloaded:
        """Call a function as soon as a thread is free. Called by one thread at a time. long_running: see Offloaded."""
        work = Offloaded(function, long_running)
        self._queue.put(work)
        if len(self.threads) < self.num_threads:
            self._start_thread()
        return work

    def relieve(self, steps_wait: bool) -> None:
        """Lower the priority of long-running functions, and start a thread if queued functions wait for stuck threads.

        The driver calls this before every step. steps_wait: True if the engine has steps to compute.
        """
        threads = [*self.threads]
        if steps_wait:
            for thread in threads:
                thread.lower_priority_if_long_running()
        now = time.monotonic()
        if self._queue.empty():
            return
        if len(threads) < self.num_threads:  # a thread has ended after a long-running function
            self._start_thread()
        elif now - self._looked >= STUCK_SECONDS:
            seconds = {thread: thread.processor_seconds() for thread in threads}
            num_stuck = sum(seconds[thread] == self._seconds.get(thread) for thread in threads)
            self._looked, self._seconds = now, seconds
            if len(threads) - num_stuck < self.num_threads and len(threads) < MOST_THREADS:
                self._start_thread()

    def _start_thread(self) -> None:
        self.threads.append(_Thread(self._queue, self.threads, self.niceness))
        self.threads[-1].start()


class _Thread(threading.Thread):
    """Calls functions one after the other, and ends after a long-running one, since its low priority is permanent.

    threads: the pool's threads, from which it then removes itself.
    """

    def __init__(self, queue: SimpleQueue[Offloaded | None], threads: list[_Thread], niceness: int) -> None:
        super().__init__(name=f"transept-offload-{len(threads) + 1}", daemon=True)
        self._queue, self._threads, self._niceness = queue, threads, niceness
        self._clock: int | None = None  # of its processor time, if the system has such a clock
        self._work: Offloaded | None = None
        self._begun = 0.0  # of processor time
        self._has_lowest_priority = False

    def run(self) -> None:
        """Call functions until the pool ends, or one is long-running."""
        if hasattr(time, "pthread_getcpuclockid"):
            self._clock = time.pthread_getcpuclockid(threading.get_ident())
        raise_niceness(threading.get_native_id(), self._niceness)
        while not self._has_lowest_priority and (work := self._queue.get()) is not None:
            if work.set_running_or_notify_cancel():
                self._call(work)
            del work  # releases the function and its result while the thread waits
        if self in self._threads:
            self._threads.remove(self)

    def lower_priority_if_long_running(self) -> None:
        """Lower the priority once the running function has taken LONG_SECONDS. Called by another thread."""
        work = self._work
        if work is not None and not self._has_lowest_priority and self.processor_seconds() - self._begun > LONG_SECONDS:
            work.long_running = True
            self._lower_priority()

    def processor_seconds(self) -> float:
        """Return the thread's processor time so far; NaN, which equals nothing, if the system does not report it."""
        try:
            if sys.platform != "win32" and self._clock is not None:
                return time.clock_gettime(self._clock)
        except OSError:  # it has ended
            pass
        return math.nan

    def _lower_priority(self) -> None:
        self._has_lowest_priority = True
        assert self.native_id is not None
        set_lowest_priority(self.native_id)

    def _call(self, work: Offloaded) -> None:
        function, work.function = work.function, None
        assert function is not None
        self._begun, self._work = self.processor_seconds(), work
        if work.long_running:
            self._lower_priority()
        outcome = Outcome()
        try:
            outcome.result = function()
        except BaseException as error:
            outcome.error = error
            release_frames(error)
        del function
        self._work = None
        end_openmp_threads()  # before the engine continues: idle OpenMP threads would slow its loops
        if self._has_lowest_priority:
            self._threads.remove(self)
        work.set_result(outcome)


def _end(queue: SimpleQueue[Offloaded | None], threads: list[_Thread]) -> None:
    for _ in [*threads]:  # a copy: threads remove themselves
        queue.put(None)


@atexit.register
def _end_all() -> None:
    """Wait for running functions at exit: a thread that dies in native code aborts the process."""
    deadline = time.monotonic() + GRACE_SECONDS
    pools = list(_pools)
    for pool in pools:
        pool.end()
    for thread in [thread for pool in pools for thread in pool.threads]:
        thread.join(max(0.0, deadline - time.monotonic()))
