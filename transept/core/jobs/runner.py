"""JobRunner: many jobs over one engine, for callers in any thread.

Made by the engine; the engine's own `generate`, transcription and text tasks run on it, so they share one batch.
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
from transept.core.jobs.job import Channel, Crash, Job, check_job
from transept.core.jobs.offload import Offloaded, OffloadPool
from transept.core.jobs.tasks import NO_JOB, JobTasks
from transept.core.request.input_processor import InputProcessor
from transept.errors import ForkedProcessError, ParameterError, QueueFullError, shown

LONGEST_WAIT = 1.0  # seconds; then a reader looks whether anybody drives, and the driver at its offloaded functions

OFFLOAD_THREADS = 2  # beside the engine, which needs the processor itself: decoding of audio, features

Result = TypeVar("Result")


class JobRunner:
    """Runs jobs over one engine; every method may be called from any thread.

    There is no thread of its own. Of the threads that wait for events one drives the engine, for everybody: it advances
    all jobs, steps, and passes on what comes up, until there is something for itself. Then another one takes over.
    What is to happen between steps (a new job, a function to call) goes through an inbox.
    """

    def __init__(
        self, core: EngineCore, inputs: InputProcessor, max_num_seqs: int, max_queue_length: int | None = None
    ) -> None:
        self._core = core
        self.tasks = JobTasks(core, inputs, max_num_seqs, self._offload)
        self._max_queue_length = max_queue_length
        self._inbox: deque[Callable[[], None]] = deque()
        self._news = threading.Event()  # set when something is put into the inbox
        self._lock = threading.RLock()  # of the two below; reentrant, since closing a generator may happen anywhere
        self._driver: int | None = None  # the thread that drives the engine
        self._waiting: list[Channel] = []  # whose readers wait while another thread drives
        self._pool = OffloadPool(OFFLOAD_THREADS)
        self._pid = os.getpid()
        self._offloaded: set[Offloaded] = set()  # under way, or on its way back through the inbox

    def run(
        self, jobs: Iterable[Job], max_jobs: int, max_requests: int | None = None
    ) -> Generator[tuple[int, Any], None, None]:
        """Run jobs, at most `max_jobs` at a time, until all have ended.

        jobs: read in the calling thread, when there is room for another one. max_requests: start no other job while so
        many requests of these are unfinished.
        Yields ``(index of the job, event)`` as events come: everything that the job yields for its reader, then what it
        returned, or the TranseptError that it raised. Jobs may end in any order, and each ends alone.
        Closing the iterator, or an exception that is no TranseptError, closes these jobs and aborts their requests.
        Raises QueueFullError before anything is read.
        """
        for name, bound in (("max_jobs", max_jobs), ("max_requests", 1 if max_requests is None else max_requests)):
            if isinstance(bound, bool) or not isinstance(bound, int) or bound < 1:
                raise ParameterError(f"{name} must be an integer of at least 1, not {shown(bound)}")
        if not isinstance(jobs, Iterable):
            raise ParameterError(f"run takes jobs, a list or what yields them, not {shown(jobs)}")
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
        """Raise QueueFullError while as many requests wait for others as may."""
        limit, waiting = self._max_queue_length, self._core.num_waiting
        if limit is not None and waiting >= limit:
            raise QueueFullError(
                f"{waiting} requests wait already, and max_queue_length is {limit}: try later, or raise that limit"
            )

    def submit(self, job: Job, channel: Channel | None = None, index: int = 0) -> Channel:
        """Start a job. channel: where its events go, with its index; None: a new one. Returns the channel."""
        check_job(job)
        channel = Channel() if channel is None else channel
        _check_channel(channel)
        channel.unfinished.add(index)
        self._put(partial(self.tasks.start, job, channel, index))
        self._drain_unless_driven()
        return channel

    def read(self, channel: Channel) -> tuple[int, Any]:
        """The next event of a channel's jobs. Drives the engine until it comes, unless another thread does.

        Each job's last event is its result, its TranseptError, or a Crash with any other exception. Raises
        ParameterError when no job is left that could have another one.
        """
        _check_channel(channel)
        self._check_may_wait()
        while not channel.events:
            channel.expect()
            if channel.ended:
                raise ParameterError("all jobs of this channel have ended, or were closed, and their events are read")
            if channel.events:
                break
            try:
                self._drive_or_queue(channel)
                if self._drives():
                    self._core.keeps_thread(channel.idles)
                    while not channel.events and channel.unfinished:
                        if self._has_step(channel):
                            self._core.step()
                            self.tasks.hand_on()
                else:
                    channel.wait(LONGEST_WAIT)
            finally:
                if self._drives():
                    if channel.idles:
                        self._core.keeps_thread(False)
                    self._driver = None
                self._leave(channel)
        return channel.take()

    def close(self, channel: Channel) -> None:
        """Close what is left of a channel's jobs and abort their requests, before the engine's next step."""
        _check_channel(channel)
        if channel.unfinished:
            self._put(partial(self.tasks.drop, channel))
            self._drain_unless_driven()

    def keep_driving(self, until: Channel) -> None:
        """Drive the engine for everybody until `release(until)`: for a thread that has nothing else to do.

        until: a Channel(idles=True). While it drives, what other threads submit or close is begun by this one.
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
        """Whether this process was forked from the one that has the engine's threads and workers."""
        return os.getpid() != self._pid

    def call(self, function: Callable[[], Result]) -> Result:
        """Call a function between steps, in the thread that drives the engine. Returns, or raises, what it does."""
        self._check_may_wait()
        try:
            self._drive_or_queue(None)
            if self._drives():
                self._core.keeps_thread(True)  # whoever calls Engine.step calls it again
                self._drain()
                self.tasks.start_children()
                try:
                    return function()
                finally:
                    self._drain()  # what others put there meanwhile, and nobody else might do
        finally:
            if self._drives():
                self._driver = None
            self._leave(None)
        return self._call_elsewhere(function)

    def _call_elsewhere(self, function: Callable[[], Result]) -> Result:
        """The same, where another thread drives, or did a moment ago."""
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
        """Raise an error where a thread would wait for itself, or for one that is gone."""
        if self.is_forked_copy:
            raise ForkedProcessError(
                "this engine was made in the process that this one was forked from, and its threads stayed there. "
                'Start processes with multiprocessing.get_context("spawn"), and make the engine in them'
            )
        if self._drives():
            raise RuntimeError(
                "the engine is used in the middle of its own step: a job waits for others by yielding them (Submit, "
                "Gather), and a logits processor for nobody"
            )
        if self._pool.runs_this_thread():
            raise RuntimeError("an offloaded function waits for its own engine: let the job yield a Submit for that")

    def _has_step(self, channel: Channel) -> bool:
        """Do what waits in the inbox; return True if the engine has a step to compute. Waits if nothing can be done."""
        self._drain()
        more = self.tasks.start_children()
        if channel.events or not channel.unfinished:
            return False
        unfinished = self._core.has_unfinished
        self._pool.relieve(unfinished)
        if unfinished or more:
            return unfinished
        if self._offloaded or channel.idles:
            self._news.wait(LONGEST_WAIT)
        elif not self._inbox and not channel.events:
            raise RuntimeError("nothing is under way that could end the wait for a job")
        return False

    def _put(self, action: Callable[[], None]) -> None:
        self._inbox.append(action)
        self._news.set()

    def _drain(self) -> None:
        self._news.clear()
        while self._inbox:
            self._inbox[0]()  # taken out last: what is interrupted is done again, which all of it allows for
            self._inbox.popleft()

    def _drain_unless_driven(self) -> None:
        """Do what waits in the inbox now, if no thread drives the engine; who does will before the next step."""
        if self._drives():
            return  # a generator is closed in the middle of a step
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
        """Let this thread drive from now on or, if another one does, put the channel among those that wait."""
        with self._lock:
            if self._driver is None:
                self._driver = threading.get_ident()
            elif channel is not None:
                self._waiting.append(channel)

    def _leave(self, channel: Channel | None) -> None:
        """A thread drives no longer, or a reader waits no longer. If nobody drives, one of those who wait is woken."""
        with self._lock:
            if channel in self._waiting:
                self._waiting.remove(channel)
            if self._driver is None and self._waiting:
                self._waiting.pop(0).wake()

    def _offload(self, function: Callable[[], Any], done: Callable[[Offloaded], None], long_running: bool) -> Offloaded:
        """Call a function on the pool, and `done` with its outcome in the thread that drives."""

        def take_back(future: Any) -> None:
            done(future)
            self._offloaded.discard(future)

        future = self._pool.submit(function, long_running)
        self._offloaded.add(future)
        future.add_done_callback(lambda ended: self._put(partial(take_back, ended)))  # without a cycle
        return future


def _check_channel(channel: Any) -> None:
    if not isinstance(channel, Channel):
        raise ParameterError(f"a channel is what submit returned, or a Channel(), not {shown(channel)}")
