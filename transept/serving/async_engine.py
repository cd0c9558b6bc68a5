"""AsyncEngine: one engine for the tasks of an event loop, which run jobs of `transept.core.jobs` on it.

A dedicated thread drives the engine, so the event loop never waits for a step. Requests are admitted before their data
is read, run in order of admission, and are aborted when their reader disconnects.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from transept.core.engine import Engine
from transept.core.jobs.job import Channel, Job, check_job
from transept.core.outputs import RequestOutput
from transept.core.request.prompts import Prompt, Request
from transept.core.request.sampling_params import SamplingParams
from transept.errors import EngineClosedError, ParameterError, QueueFullError, TranseptError, shown
from transept.serving.job_context import in_context
from transept.serving.loop_channel import Ended, LoopChannel, with_ended
from transept.serving.prompt_jobs import generation, one_token
from transept.serving.settings import MAX_QUEUE, MAX_RUNNING

logger = logging.getLogger(__name__)

FIRST_GUESS = 2.0  # seconds of a job, until one has ended
WEIGHT = 0.2  # of the newest job in the moving average of their durations


@dataclass(frozen=True)
class Queued:
    """An event: the job waits for its turn. position: 1 for the next one."""

    position: int


class AsyncEngine:
    """Runs jobs on one engine for one event loop. All methods must be called in the event loop's thread.

    engine: driven by a thread of this class until `close`; a Transcriber or TextGenerator may use it at the same time,
        in any thread. max_running: jobs that run at a time; their requests share the engine's batch. max_queue: jobs
        that may wait; with more, `admit` raises QueueFullError.
    heartbeat: makes a job that takes a step; None: a request for one token, or no step if the encoder takes no text.
    preliminary: types of events that contain no result yet, which do not count as a ticket's first event.
    observer: None, or called with each ticket of `admit` when it is released. num_admitted: number of tickets so far.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        max_running: int = MAX_RUNNING,
        max_queue: int = MAX_QUEUE,
        heartbeat: Callable[[], Job] | None = None,
        preliminary: tuple[type, ...] = (),
    ) -> None:
        for name, bound, least in (("max_running", max_running, 1), ("max_queue", max_queue, 0)):
            if isinstance(bound, bool) or not isinstance(bound, int) or bound < least:
                message = f"{{{name}}} must be an integer of at least {least}, not {shown(bound)}"
                raise ParameterError(message, param=name, value=bound)
        self.engine = engine
        self.max_running, self.max_queue = max_running, max_queue
        self._heartbeat = partial(one_token, engine) if heartbeat is None else heartbeat
        self.preliminary = preliminary
        self.observer: Callable[[Ticket], None] | None = None
        self.num_admitted = 0
        self._tickets: set[Ticket] = set()
        self._streams: set[Ticket] = set()  # tickets of live streams
        self._running: set[Ticket] = set()
        self._queue: deque[Ticket] = deque()
        self._seconds_a_job = FIRST_GUESS
        self._draining = False
        self._failure: BaseException | None = None  # the exception that ended the thread
        self._loop: asyncio.AbstractEventLoop | None = None  # of the first request
        self._until = Channel(idles=True)
        self._thread = threading.Thread(target=self._drive, name="transept-engine", daemon=True)
        self._thread.start()

    def admit(self) -> Ticket:
        """Admit a request before its data is read. Use the ticket as an asynchronous context manager.

        Raises QueueFullError if max_running jobs run and max_queue wait, EngineClosedError while draining and after.
        """
        self._check_open()
        self._bind(asyncio.get_running_loop())
        self.check_room()
        ticket = Ticket(self)
        self._tickets.add(ticket)
        self.num_admitted += 1
        return ticket

    def admit_stream(self) -> Ticket:
        """Admit a live stream. Its job runs at once, takes no place of other jobs, and may last for hours.

        The caller bounds the number of streams. Raises EngineClosedError while draining and after.
        """
        self._check_open()
        self._bind(asyncio.get_running_loop())
        ticket = Ticket(self, is_stream=True)
        self._streams.add(ticket)
        return ticket

    def check_room(self) -> None:
        """Raise QueueFullError if max_running jobs run and max_queue wait."""
        if len(self._tickets) >= self.max_running + self.max_queue:
            raise QueueFullError(
                f"{len(self._running)} requests run and {len(self._tickets) - len(self._running)} wait: try again in "
                f"{self.retry_after:.0f} s"
            )

    async def run(self, job: Job) -> AsyncGenerator[Any, None]:
        """Admit and run a job. Yields its events as they arrive, then its result. Raises the job's exception."""
        async with self.admit() as ticket, contextlib.aclosing(ticket.run(job)) as events:
            async for event in events:
                yield event

    async def generate(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        *,
        stream: bool = False,
        lora: str | None = None,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Yield the finished output of one prompt. stream: also yield the unfinished outputs, as tokens are generated.

        lora: name of the adapter to compute with; None: no adapter.
        Raises as Engine.generate. Closing the generator aborts the request.
        """
        async with contextlib.aclosing(
            self.run(generation(self.engine.inputs, Request(prompt, sampling_params, lora=lora), stream))
        ) as events:
            async for event in events:
                if isinstance(event, RequestOutput):
                    yield event

    async def check_health(self, timeout: float = 30.0) -> float:
        """Make the engine take a step, and return the seconds until it was done.

        If the engine is so busy that a new request waits, the steps of other requests count. Raises EngineClosedError
        if no step ends within timeout (seconds), or if the engine is closed.
        """
        self._check_open(while_draining=True)
        begin, steps = time.monotonic(), self.engine.core.statistics.num_steps
        channel = self._start(self._heartbeat())
        try:
            async with asyncio.timeout(timeout):
                while not isinstance(event := await channel.next(), Ended):
                    pass
            event.result()
        except TimeoutError:
            if self.engine.core.statistics.num_steps == steps:
                raise EngineClosedError(f"the engine has not taken a step for {timeout:g} s") from None
        finally:
            self._stop(channel)
        return time.monotonic() - begin

    async def warm_up(self, timeout: float = 600.0) -> float:
        """Take a step, which starts threads and fills caches before the first request. Returns the seconds it took."""
        return await self.check_health(timeout)

    @property
    def num_running(self) -> int:
        """Number of running jobs."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Number of admitted jobs that have not started."""
        return len(self._tickets) - len(self._running)

    @property
    def num_streams(self) -> int:
        """Number of live streams."""
        return len(self._streams)

    @property
    def retry_after(self) -> float:
        """Estimated seconds until there is a free place, from the durations of earlier jobs."""
        return max(1.0, self._seconds_a_job * max(1, len(self._queue)) / self.max_running)

    @property
    def is_alive(self) -> bool:
        """True if the engine's thread and the processes of its ranks are alive."""
        if self._failure is not None or not self._thread.is_alive():
            return False
        try:
            self.engine.executor.check_open()
        except TranseptError:
            return False
        return True

    async def drain(self, timeout: float | None = None) -> bool:
        """Refuse new requests and wait for the admitted ones. timeout: seconds. Returns True if all of them ended."""
        self._draining = True
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._held and (deadline is None or time.monotonic() < deadline):
            await asyncio.sleep(0.05)
        return not self._held

    def abort(self) -> None:
        """Refuse new requests, and fail all admitted ones with EngineClosedError at once."""
        self._draining = True
        self._fail_all(EngineClosedError("the engine was closed before the request ended"))

    async def close(self) -> None:
        """Abort all requests, end the thread and free the engine's memory."""
        self.abort()
        await asyncio.to_thread(self._close)

    def stop(self) -> None:
        """End the thread after its current step, and leave the engine open."""
        self.engine.runner.release(self._until)
        self._thread.join()

    def _close(self) -> None:
        if self._thread.is_alive():
            self.stop()
        self.engine.close()

    def _drive(self) -> None:
        """Drive the engine until `stop`. An exception fails all requests."""
        try:
            self.engine.runner.keep_driving(self._until)
        except BaseException as failure:
            logger.exception("the engine stopped")
            self._failure = failure
            if self._loop is not None:
                with contextlib.suppress(RuntimeError):  # the loop is closed, so no task waits
                    self._loop.call_soon_threadsafe(self._fail_all, self._stopped())

    @property
    def _held(self) -> set[Ticket]:
        return self._tickets | self._streams

    def _fail_all(self, error: TranseptError) -> None:
        for ticket in self._held:
            ticket._fail(error)

    def _bind(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise ParameterError(
                "an AsyncEngine belongs to the event loop of its first request: make another one for this event loop"
            )

    def _stopped(self) -> TranseptError:
        error = EngineClosedError("the engine stopped after an internal error: see the log")
        error.__cause__ = self._failure
        return error

    def _check_open(self, while_draining: bool = False) -> None:
        if self._failure is not None:
            raise self._stopped()
        if not self._thread.is_alive():
            raise EngineClosedError("the engine is closed")
        self.engine.executor.check_open()
        if self._draining and not while_draining:
            raise EngineClosedError("the engine is draining and accepts no new requests")

    def _start(self, job: Job) -> LoopChannel:
        """Start a job before the next step, in the caller's context."""
        channel = LoopChannel(asyncio.get_running_loop())
        self.engine.runner.submit(with_ended(in_context(job)), channel)
        return channel

    def _stop(self, channel: LoopChannel) -> None:
        """Close a job that has not ended."""
        self.engine.runner.close(channel)

    def _next_turns(self) -> None:
        """Let waiting jobs run while there is room, and notify all of their positions."""
        while self._queue and len(self._running) < self.max_running:
            self._running.add(self._queue.popleft())
        for ticket in (*self._running, *self._queue):
            ticket._moved.set()


class Ticket:
    """A request's place in an AsyncEngine, from `admit`. Leaving its ``async with`` block aborts the job.

    admitted, started, first_event: seconds of time.monotonic. started: set when the job runs. first_event: set at its
    first event that is not preliminary, or at its result. is_stream: True for a live stream, which never waits.
    """

    def __init__(self, engine: AsyncEngine, *, is_stream: bool = False) -> None:
        self.is_stream = is_stream
        self.admitted = time.monotonic()
        self.started: float | None = None
        self.first_event: float | None = None
        self._engine = engine
        self._moved = asyncio.Event()  # set when positions in the queue change
        self._channel: LoopChannel | None = None
        self._error: TranseptError | None = None

    async def __aenter__(self) -> Ticket:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Release the place and abort the job. Does nothing the second time."""
        engine = self._engine
        if self not in engine._held:
            return
        engine._tickets.discard(self)
        engine._streams.discard(self)
        if self in engine._running:
            engine._running.discard(self)
            if self.started is not None:
                seconds = time.monotonic() - self.started
                engine._seconds_a_job += WEIGHT * (seconds - engine._seconds_a_job)
        with contextlib.suppress(ValueError):
            engine._queue.remove(self)
        if self._channel is not None:
            engine._stop(self._channel)
        if engine.observer is not None and not self.is_stream:
            engine.observer(self)
        engine._next_turns()

    @property
    def position(self) -> int:
        """Place in the queue, from 1; 0 if it runs, or if `run` has not been called."""
        queue = self._engine._queue
        return queue.index(self) + 1 if self in queue else 0

    async def run(self, job: Job) -> AsyncGenerator[Any, None]:
        """Wait for a turn, then run a job, once per ticket. Yields the job's events as they arrive, then its result.

        While it waits, it yields a Queued whenever its position changes. Raises the job's TranseptError, a
        RequestFailedError for any other exception, and EngineClosedError if the engine stops.
        """
        check_job(job)
        if self.started is not None or self.position or self not in self._engine._held:
            raise ParameterError("a ticket runs one job, and this one has run it or was released: admit another one")
        if not self.is_stream:
            async with contextlib.aclosing(self._wait()) as positions:
                async for queued in positions:
                    yield queued
        if self._error is not None:
            raise self._error  # the engine stopped while the request was read
        self.started = time.monotonic()
        self._channel = self._engine._start(job)
        while not isinstance(event := await self._next(), Ended):
            yield event
        yield event.result()

    async def _next(self) -> Any:
        """Return the job's next event."""
        assert self._channel is not None
        event = await self._channel.next()
        if self.first_event is None and not isinstance(event, self._engine.preliminary):
            self.first_event = time.monotonic()
        return event

    async def _wait(self) -> AsyncGenerator[Queued, None]:
        """Wait for a turn. Yields the position whenever it changes."""
        engine, told_position = self._engine, 0
        engine._queue.append(self)
        engine._next_turns()
        while self not in engine._running:
            if self._error is not None:
                raise self._error
            if self.position != told_position:
                told_position = self.position
                yield Queued(told_position)
                continue
            self._moved.clear()
            await self._moved.wait()

    def _fail(self, error: TranseptError) -> None:
        """Fail the request."""
        self._error = error
        self._moved.set()
        if self._channel is not None:
            self._channel.post(0, Ended(None, error))
