"""JobRunner: runs many jobs over one engine, for callers in any thread.

Made by the engine. The engine's own `generate`, transcription and text tasks run on it, so they share one batch.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from transept.core.engine_core import EngineCore
from transept.core.jobs.job import Channel, Crash, Job, Offload, check_job
from transept.core.jobs.offload import Offloaded, OffloadPool
from transept.core.jobs.tasks import NO_JOB, JobTasks
from transept.core.request.input_processor import InputProcessor
from transept.errors import ForkedProcessError, ParameterError, QueueFullError, shown

LONGEST_WAIT = 1.0  # seconds; then a reader checks that a thread drives, and the driver checks its offloaded functions

OFFLOAD_THREADS = 2  # for audio decoding, features and the like; few, because the engine needs the cores

Result = TypeVar("Result")


class JobRunner:
    """Runs jobs over one engine; every method may be called from any thread.

    It starts no thread. One of the threads that wait for events drives the engine on behalf of all: it advances
    all jobs, computes steps and posts events, until its own channel has an event. Then it wakes another waiting thread,
    which becomes the driver. Work to do between two steps (a new job, a function to call) goes through an inbox.
    """

    def __init__(
        self, core: EngineCore, inputs: InputProcessor, max_num_seqs: int, max_queue_length: int | None = None
    ) -> None:
        self._core = core
        self.tasks = JobTasks(core, inputs, max_num_seqs, self._offload, self._put)
        self._max_queue_length = max_queue_length
        self._inbox: deque[Callable[[], None]] = deque()
        self._news = threading.Event()  # set by every addition to the inbox
        self._lock = threading.RLock()  # of the two below; reentrant, since a generator may be closed at any point
        self._driver: int | None = None  # the thread that drives the engine
        self._waiting: list[Channel] = []  # whose readers wait while another thread drives
        self._pool, self._slow_pool = OffloadPool(OFFLOAD_THREADS), OffloadPool(OFFLOAD_THREADS)
        self._urgent_pool = OffloadPool(OFFLOAD_THREADS, niceness=0)
        self._pools = (self._pool, self._slow_pool, self._urgent_pool)
        self._pid = os.getpid()
        self._offloaded: set[Offloaded] = set()  # running, or with a result in the inbox

    def run(
        self, jobs: Iterable[Job], max_jobs: int, max_requests: int | None = None
    ) -> Generator[tuple[int, Any], None, None]:
        """Run jobs, at most `max_jobs` at a time, until all have ended.

        jobs: consumed lazily in the calling thread, as there is room. max_requests: start no further job while the
        running ones have that many unfinished requests.
        Yields ``(index of the job, event)`` as events arrive: first the job's events, then its result, or the
        TranseptError that it raised. Jobs may end in any order, and such an error does not affect other jobs.
        Closing the iterator closes these jobs and aborts their requests. If a job raises any other exception, the
        iterator closes all of them in the same way and raises it.
        Raises QueueFullError before it reads from `jobs`.
        """
        for name, bound in (("max_jobs", max_jobs), ("max_requests", 1 if max_requests is None else max_requests)):
            if isinstance(bound, bool) or not isinstance(bound, int) or bound < 1:
                message = f"{{{name}}} must be an integer of at least 1, not {{{name}!}}"
                raise ParameterError(message, param=name, value=bound)
        if not isinstance(jobs, Iterable):
            raise ParameterError(
                f"run takes jobs, a list or what yields them, not {shown(jobs)}", param="jobs", value=jobs
            )
        self.check_queue()
        channel = Channel()
        remaining = enumerate(jobs)
        try:
            while True:
                while len(channel.unfinished) < max_jobs and not (
                    channel.unfinished and max_requests is not None and channel.num_requests >= max_requests
                ):
                    index, job = next(remaining, (-1, NO_JOB))
                    if job is NO_JOB:
                        break
                    self.submit(job, channel, index)
                if channel.ended:
                    return
                index, event = self.read(channel)
                if isinstance(event, Crash):
                    raise event.error
                yield index, event
        finally:
            self.close(channel)

    def check_queue(self) -> None:
        """Raise QueueFullError if max_queue_length requests are waiting."""
        limit, waiting = self._max_queue_length, self._core.num_waiting
        if limit is not None and waiting >= limit:
            raise QueueFullError(
                f"{waiting} requests wait already, and {{max_queue_length}} is {limit}: try later, or raise that limit",
                others=["max_queue_length"],
            )

    def submit(self, job: Job, channel: Channel | None = None, index: int = 0) -> Channel:
        """Start a job. channel: receives its events, with its index; None: a new one. Returns the channel."""
        check_job(job)
        channel = Channel() if channel is None else channel
        _check_channel(channel)
        channel.unfinished.add(index)
        self._put(partial(self.tasks.start, job, channel, index))
        self._drain_unless_driven()
        return channel

    def read(self, channel: Channel) -> tuple[int, Any]:
        """Return the next event of a channel's jobs. Drives the engine until then, unless another thread does.

        Each job's last event is its result, its TranseptError, or a Crash with any other exception. Raises
        ParameterError if all jobs have ended and all events have been read.
        """
        _check_channel(channel)
        self._check_may_wait()
        while not channel.events:
            channel.news.clear()  # before the channel is checked, so that no later event is missed
            if channel.ended:
                message = "all jobs of this channel have ended, or were closed, and their events are read"
                raise ParameterError(message, param="channel")
            if channel.events:
                break
            try:
                self._drive_or_queue(channel)
                if self._drives():
                    self._core.keeps_thread(channel.idles)
                    while not channel.events and channel.unfinished:
                        if self._has_step(channel):
                            self._core.step()
                            self.tasks.distribute()
                else:
                    channel.news.wait(LONGEST_WAIT)
            finally:
                if self._drives():
                    if channel.idles:
                        self._core.keeps_thread(False)
                    self._driver = None
                self._leave(channel)
        return channel.take()

    def close(self, channel: Channel) -> None:
        """Close a channel's unfinished jobs and abort their requests, before the engine's next step."""
        _check_channel(channel)
        if channel.unfinished:
            self._put(partial(self.tasks.drop, channel))
            self._drain_unless_driven()

    def keep_driving(self, until: Channel) -> None:
        """Drive the engine for all threads until `release(until)`. For a dedicated thread.

        until: a Channel(idles=True). Meanwhile this thread also starts and closes the jobs of other threads.
        """
        _check_channel(until)
        until.unfinished.add(0)
        self.read(until)

    def release(self, channel: Channel) -> None:
        """End `keep_driving`, from any thread."""
        _check_channel(channel)
        channel.post(0, None)
        self._news.set()

    @property
    def is_forked_copy(self) -> bool:
        """True if this process was forked from the one that has the engine's threads and workers."""
        return os.getpid() != self._pid

    def call(self, function: Callable[[], Result]) -> Result:
        """Call a function between two steps, in the driving thread. Returns its result or raises its exception."""
        self._check_may_wait()
        try:
            self._drive_or_queue(None)
            if self._drives():
                self._core.keeps_thread(True)  # the same thread is expected to call Engine.step again
                self._drain()
                self.tasks.start_children()
                try:
                    return function()
                finally:
                    self._drain()  # actions added meanwhile, which no other thread may drain
        finally:
            if self._drives():
                self._driver = None
            self._leave(None)
        return self._call_elsewhere(function)

    def _call_elsewhere(self, function: Callable[[], Result]) -> Result:
        """Call a function like `call`, through the inbox, because another thread drives or just stopped driving."""
        channel, outcome = Channel(), Future[Result]()
        channel.unfinished.add(0)

        def answer() -> None:
            if outcome.done():
                return
            try:
                outcome.set_result(function())
            except BaseException as error:
                outcome.set_exception(error)
                if not isinstance(error, Exception):
                    raise
            finally:
                channel.post(0, None, last=True)

        self._put(answer)
        self.read(channel)
        return outcome.result()

    def _check_may_wait(self) -> None:
        """Raise an error if the calling thread would wait forever: for its own work, or for a thread lost in a fork."""
        if self.is_forked_copy:
            raise ForkedProcessError(
                "this engine was made in the process that this one was forked from, and its threads stayed there. "
                'Start processes with multiprocessing.get_context("spawn"), and make the engine in them'
            )
        if self._drives():
            raise RuntimeError(
                "the engine is called during its own step. A job waits for others by yielding them (Submit, Gather); a "
                "logits processor must not call the engine"
            )
        if any(pool.runs_this_thread() for pool in self._pools):
            raise RuntimeError("an offloaded function waits for its own engine: let the job yield a Submit instead")

    def _has_step(self, channel: Channel) -> bool:
        """Drain the inbox, and wait if the engine has no work. Returns True if it has a step to compute."""
        self._drain()
        more = self.tasks.start_children()
        if channel.events or not channel.unfinished:
            return False
        unfinished = self._core.has_unfinished
        self._pool.relieve(unfinished)
        self._slow_pool.relieve(unfinished)
        self._urgent_pool.relieve(False)  # its threads keep their priority
        if unfinished or more:
            return unfinished
        if self._offloaded or self.tasks.listening or channel.idles:
            self._news.wait(LONGEST_WAIT)
        elif not self._inbox and not channel.events:
            raise RuntimeError("a job waits, but the engine has no step, request or function that could resume it")
        return False

    def _put(self, action: Callable[[], None]) -> None:
        self._inbox.append(action)
        self._news.set()

    def _drain(self) -> None:
        self._news.clear()
        while self._inbox:
            self._inbox[0]()  # removed afterwards: an interrupted action runs again, and every action allows that
            self._inbox.popleft()

    def _drain_unless_driven(self) -> None:
        """Drain the inbox now, unless another thread drives, which will drain it before its next step."""
        if self._drives():
            return  # called in the middle of a step, when a generator is closed
        try:
            self._drive_or_queue(None)
            if self._drives():
                self._drain()
        finally:
            if self._drives():
                self._driver = None
            self._leave(None)

    def _drives(self) -> bool:
        return self._driver == threading.get_ident()

    def _drive_or_queue(self, channel: Channel | None) -> None:
        """Make this thread the driver or, if there is one, add the channel to the waiting ones."""
        with self._lock:
            if self._driver is None:
                self._driver = threading.get_ident()
            elif channel is not None:
                self._waiting.append(channel)

    def _leave(self, channel: Channel | None) -> None:
        """Stop driving or waiting. If no thread drives, wake one of the waiting readers, or drain the inbox."""
        with self._lock:
            if channel in self._waiting:
                self._waiting.remove(channel)
            is_left = self._driver is None and not self._waiting
            if self._driver is None and self._waiting:
                self._waiting.pop(0).news.set()
        if is_left and self._inbox:  # actions of threads that saw a driver after its last drain
            self._drain_unless_driven()

    def _offload(self, event: Offload, done: Callable[[Offloaded], None], long_running: bool) -> Offloaded:
        """Call a function on its pool, then `done` with its outcome in the driving thread."""

        def take_back(future: Any) -> None:
            done(future)
            self._offloaded.discard(future)

        pool = self._urgent_pool if event.urgent else self._slow_pool if event.slow else self._pool
        future = pool.submit(event.function, long_running and not event.urgent)
        self._offloaded.add(future)
        future.add_done_callback(lambda ended: self._put(partial(take_back, ended)))  # without a cycle
        return future


def _check_channel(channel: Any) -> None:
    if not isinstance(channel, Channel):
        message = f"a channel is what submit returned, or a Channel(), not {shown(channel)}"
        raise ParameterError(message, param="channel", value=channel)
