"""OffloadPool: a few threads for what jobs do beside the engine. Used by `transept.core.job_runner`."""

from __future__ import annotations

import atexit
import math
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeAlias

from transept.core.kernels.openmp import end_openmp_threads

MOST_THREADS = 64  # those that wait for something, such as a pipe, among them
STUCK_SECONDS = 1.0  # without any processor time; then a thread waits, and another one may work in its place
GRACE_SECONDS = 5.0  # that the end of the process waits for what is being computed
NICENESS = 10  # of a thread, above the process's: a tenth of the engine's share of a core that both want

_pools: weakref.WeakSet[OffloadPool] = weakref.WeakSet()

Offloaded: TypeAlias = tuple[Future[Any], Callable[[], Any]] | None  # None ends a thread


def has_threads() -> bool:
    """Whether any pool has started threads, which may be at work."""
    return any(pool.threads for pool in _pools)


class OffloadPool:
    """Calls functions in threads, which start as they are needed and end with the pool.

    num_threads: how many compute at a time. Of those that only wait, as for a pipe that nobody writes to, there may be
    MOST_THREADS, on systems that tell a thread's processor time.

    They are daemons, unlike those of ThreadPoolExecutor: a function that waits for ever, such as for a pipe that nobody
    writes to, keeps no process from ending, but for GRACE_SECONDS.
    """

    def __init__(self, num_threads: int) -> None:
        self.num_threads = num_threads
        self._queue: SimpleQueue[Offloaded] = SimpleQueue()
        self.threads: list[threading.Thread] = []
        self._looked = 0.0  # when `relieve` looked at them, in seconds of time.monotonic
        self._seconds: dict[threading.Thread, float] = {}  # processor time of each then
        self.end = weakref.finalize(self, _end, self._queue, self.threads)
        _pools.add(self)

    def runs_this_thread(self) -> bool:
        """Whether the calling thread is one of the pool's."""
        return threading.current_thread() in self.threads

    def submit(self, function: Callable[[], Any]) -> Future[Any]:
        """Call a function as soon as a thread is free. Called by one thread at a time."""
        future = Future[Any]()
        self._queue.put((future, function))
        if len(self.threads) < self.num_threads:
            self._start_thread()
        return future

    def relieve(self) -> None:
        """Start another thread where functions wait for threads that wait themselves. Called again and again."""
        now = time.monotonic()
        if self._queue.empty() or now - self._looked < STUCK_SECONDS:
            return
        seconds = {thread: _processor_seconds(thread) for thread in self.threads}
        num_stuck = sum(seconds[thread] == self._seconds.get(thread) for thread in self.threads)
        self._looked, self._seconds = now, seconds
        if len(self.threads) - num_stuck < self.num_threads and len(self.threads) < MOST_THREADS:
            self._start_thread()

    def _start_thread(self) -> None:
        name = f"transept-offload-{len(self.threads) + 1}"
        self.threads.append(threading.Thread(target=_work, args=(self._queue,), name=name, daemon=True))
        self.threads[-1].start()


def _processor_seconds(thread: threading.Thread) -> float:
    """How long a thread has computed so far; NaN, which equals nothing, where the system does not tell."""
    clock_of = getattr(time, "pthread_getcpuclockid", None)
    if clock_of is None or thread.ident is None or not thread.is_alive():
        return math.nan
    return time.clock_gettime(clock_of(thread.ident))


def _let_the_engine_go_first() -> None:
    """Lower this thread's priority, where a thread has one of its own (Linux): steps come before files."""
    if sys.platform == "linux":
        with suppress(OSError):  # a system that forbids it
            nice = os.getpriority(os.PRIO_PROCESS, 0)
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), nice + NICENESS)


def _work(queue: SimpleQueue[Offloaded]) -> None:
    _let_the_engine_go_first()
    while (work := queue.get()) is not None:
        future, function = work
        del work
        if future.set_running_or_notify_cancel():
            try:
                result = function()
            except BaseException as error:
                end_openmp_threads()
                future.set_exception(error)
            else:
                end_openmp_threads()  # before the engine goes on, whose loops they would slow
                future.set_result(result)
                del result
        del future, function  # what they hold is not kept while the thread waits


def _end(queue: SimpleQueue[Offloaded], threads: list[threading.Thread]) -> None:
    for _ in threads:
        queue.put(None)


@atexit.register
def _end_all() -> None:
    """Let what is being computed come to its end with the process: a thread that dies in native code aborts it."""
    deadline = time.monotonic() + GRACE_SECONDS
    pools = list(_pools)
    for pool in pools:
        pool.end()
    for thread in [thread for pool in pools for thread in pool.threads]:
        thread.join(max(0.0, deadline - time.monotonic()))
