"""AsyncEngine: one engine for the many tasks of an event loop, each of which runs jobs of `transept.core.jobs`.

A thread of its own drives the engine; the event loop never waits for a step. Requests are admitted before anything of
them is read, wait their turn in order, and are aborted when whoever reads them goes away.
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
from transept.core.jobs.job import Channel, Job, Offload, Submit, Wait, check_job
from transept.core.outputs import RequestOutput
from transept.core.request.input_processor import InputProcessor
from transept.core.request.prompts import ExplicitEncoderDecoderPrompt, Prompt, Request
from transept.core.request.sampling_params import SamplingParams
from transept.errors import EngineClosedError, ParameterError, QueueFullError, TranseptError, shown
from transept.serving.job_context import in_context
from transept.serving.loop_channel import Ended, LoopChannel, told
from transept.serving.settings import MAX_QUEUE, MAX_RUNNING

logger = logging.getLogger(__name__)

FIRST_GUESS = 2.0  # seconds that a job takes, before any has ended
WEIGHT = 0.2  # of the newest job in the mean of what they take


@dataclass(frozen=True)
class Queued:
    """An event: the job waits for its turn. position: 1 for the next one."""

    position: int


class AsyncEngine:
    """Runs jobs over one engine for one event loop.

    engine: from now on driven by a thread of this class, until `close`; Transcriber and TextGenerator, in whatever
        thread, may use it at the same time. max_running: jobs that are worked on at a time, whose requests share the
        engine's batch. max_queue: jobs that wait for their turn, beyond which `admit` raises QueueFullError.
    heartbeat: makes a job that takes a step; None: a request of one token, and nothing where the encoder takes no text.
    preliminary: kinds of events that tell nothing of a job's result yet.
    observer: None, or called with each ticket when it is left. num_admitted: tickets so far.

    All methods belong to the thread of the event loop.
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
        self._heartbeat = partial(_one_token, engine) if heartbeat is None else heartbeat
        self.preliminary = preliminary
        self.observer: Callable[[Ticket], None] | None = None
        self.num_admitted = 0
        self._tickets: set[Ticket] = set()
        self._running: set[Ticket] = set()
        self._queue: deque[Ticket] = deque()
        self._seconds_a_job = FIRST_GUESS
        self._draining = False
        self._failure: BaseException | None = None  # what ended the thread
        self._loop: asyncio.AbstractEventLoop | None = None  # of the first request
        self._until = Channel(idles=True)
        self._thread = threading.Thread(target=self._drive, name="transept-engine", daemon=True)
        self._thread.start()

    def admit(self) -> Ticket:
        """Take a place, before anything of a request is read. To be left with ``async with``.

        Raises QueueFullError when max_running jobs run and max_queue wait, EngineClosedError while draining and after.
        """
        self._check_open()
        self._bind(asyncio.get_running_loop())
        self.check_room()
        ticket = Ticket(self)
        self._tickets.add(ticket)
        self.num_admitted += 1
        return ticket

    def check_room(self) -> None:
        """Raise QueueFullError when max_running jobs run and max_queue wait."""
        if len(self._tickets) >= self.max_running + self.max_queue:
            raise QueueFullError(
                f"{len(self._running)} requests run and {len(self._tickets) - len(self._running)} wait already: try "
                f"again in {self.retry_after:.0f} s"
            )

    async def run(self, job: Job) -> AsyncGenerator[Any, None]:
        """Admit and run a job: its events as they come, and last what it returned. Raises what it raised."""
        async with self.admit() as ticket, contextlib.aclosing(ticket.run(job)) as events:
            async for event in events:
                yield event

    async def generate(
        self, prompt: Prompt, sampling_params: SamplingParams | None = None, *, stream: bool = False
    ) -> AsyncGenerator[RequestOutput, None]:
        """The outputs of one prompt: the last one is finished. stream: all of them, as tokens come.

        Raises what Engine.generate raises. Leaving it early aborts the request.
        """
        async with contextlib.aclosing(
            self.run(generation(self.engine.inputs, prompt, sampling_params, stream))
        ) as events:
            async for event in events:
                if isinstance(event, RequestOutput):
                    yield event

    async def check_health(self, timeout: float = 30.0) -> float:
        """Let the engine take a real step, and return the seconds until it had.

        Where it is so busy that a new request waits, the steps of others count. Raises EngineClosedError when no step
        ends within timeout (seconds), or the engine is closed.
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
        """Compute something once, so that the first request finds all threads and caches ready. Returns the seconds."""
        return await self.check_health(timeout)

    @property
    def num_running(self) -> int:
        """Jobs that are worked on."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Jobs that were admitted and have not begun."""
        return len(self._tickets) - len(self._running)

    @property
    def retry_after(self) -> float:
        """Seconds after which there will be a place, by the time that jobs took so far."""
        return max(1.0, self._seconds_a_job * max(1, len(self._queue)) / self.max_running)

    @property
    def is_alive(self) -> bool:
        """Whether the thread that drives the engine does, and the processes of its ranks do."""
        if self._failure is not None or not self._thread.is_alive():
            return False
        try:
            self.engine.executor.check_open()
        except TranseptError:
            return False
        return True

    async def drain(self, timeout: float | None = None) -> bool:
        """Take no new work, and wait for what was admitted. timeout: seconds. Returns whether all of it ended."""
        self._draining = True
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._tickets and (deadline is None or time.monotonic() < deadline):
            await asyncio.sleep(0.05)
        return not self._tickets

    def abort(self) -> None:
        """Take no new work, and end all that was admitted with an EngineClosedError, at once."""
        self._draining = True
        self._fail_all(EngineClosedError("the engine was closed before this was done"))

    async def close(self) -> None:
        """Abort what is left, end the thread and give back the engine's memory."""
        self.abort()
        await asyncio.to_thread(self._close)

    def stop(self) -> None:
        """End the thread alone; the engine stays as it is. Waits for the step that is under way."""
        self.engine.runner.release(self._until)
        self._thread.join()

    def _close(self) -> None:
        if self._thread.is_alive():
            self.stop()
        self.engine.close()

    def _drive(self) -> None:
        """The thread. Whatever ends it before its time ends everybody's requests."""
        try:
            self.engine.runner.keep_driving(self._until)
        except BaseException as failure:
            logger.exception("the engine stopped")
            self._failure = failure
            if self._loop is not None:
                with contextlib.suppress(RuntimeError):  # a loop that is closed: nobody waits
                    self._loop.call_soon_threadsafe(self._fail_all, self._stopped())

    def _fail_all(self, error: TranseptError) -> None:
        for ticket in self._tickets:
            ticket._fail(error)

    def _bind(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise ParameterError("an AsyncEngine belongs to the event loop of its first request, and this is another")

    def _stopped(self) -> TranseptError:
        error = EngineClosedError("the engine stopped after an error of its own, which its log tells")
        error.__cause__ = self._failure
        return error

    def _check_open(self, while_draining: bool = False) -> None:
        if self._failure is not None:
            raise self._stopped()
        if not self._thread.is_alive():
            raise EngineClosedError("the engine is closed")
        self.engine.executor.check_open()
        if self._draining and not while_draining:
            raise EngineClosedError("the engine ends what it has begun and takes no new work")

    def _start(self, job: Job) -> LoopChannel:
        """Start a job before the next step, in the caller's context."""
        channel = LoopChannel(asyncio.get_running_loop())
        self.engine.runner.submit(told(in_context(job)), channel)
        return channel

    def _stop(self, channel: LoopChannel) -> None:
        """Close what is left of a job."""
        self.engine.runner.close(channel)

    def _next_turns(self) -> None:
        """Let jobs begin while there is room, and tell the others how far they have come."""
        while self._queue and len(self._running) < self.max_running:
            self._running.add(self._queue.popleft())
        for ticket in (*self._running, *self._queue):
            ticket._moved.set()


class Ticket:
    """A request's place in an AsyncEngine, made by its `admit`. Leaving it (``async with``) aborts what is under way.

    admitted, started, first_event: seconds of time.monotonic; the latter two are None before its turn, and before the
        job's first event or result; a preliminary one is none.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self.admitted = time.monotonic()
        self.started: float | None = None
        self.first_event: float | None = None
        self._engine = engine
        self._moved = asyncio.Event()  # the queue has
        self._channel: LoopChannel | None = None
        self._error: TranseptError | None = None

    async def __aenter__(self) -> Ticket:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Give the place back, and abort what is under way; nothing happens the second time."""
        engine = self._engine
        if self not in engine._tickets:
            return
        engine._tickets.discard(self)
        if self in engine._running:
            engine._running.discard(self)
            if self.started is not None:
                seconds = time.monotonic() - self.started
                engine._seconds_a_job += WEIGHT * (seconds - engine._seconds_a_job)
        with contextlib.suppress(ValueError):
            engine._queue.remove(self)
        if self._channel is not None:
            engine._stop(self._channel)
        if engine.observer is not None:
            engine.observer(self)
        engine._next_turns()

    @property
    def position(self) -> int:
        """How many requests are before it, itself counted; 0 once it runs, or has not asked for its turn."""
        queue = self._engine._queue
        return queue.index(self) + 1 if self in queue else 0

    async def run(self, job: Job) -> AsyncGenerator[Any, None]:
        """Wait for a turn, then run a job: its events as they come, and last what it returned.

        While it waits a Queued is yielded whenever its position changes. Raises what the job raised, a
        RequestFailedError for what is no TranseptError, and EngineClosedError when the engine stops. One job a ticket.
        """
        check_job(job)
        if self.started is not None or self.position or self not in self._engine._tickets:
            raise ParameterError("a ticket runs one job, and this one has had it, or was left")
        async with contextlib.aclosing(self._wait()) as positions:
            async for queued in positions:
                yield queued
        if self._error is not None:
            raise self._error  # of an engine that stopped while the request was read
        self.started = time.monotonic()
        self._channel = self._engine._start(job)
        while not isinstance(event := await self._next(), Ended):
            yield event
        yield event.result()

    async def _next(self) -> Any:
        """The job's next event."""
        assert self._channel is not None
        event = await self._channel.next()
        if self.first_event is None and not isinstance(event, self._engine.preliminary):
            self.first_event = time.monotonic()
        return event

    async def _wait(self) -> AsyncGenerator[Queued, None]:
        """Wait for a turn."""
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
        """End it with an error."""
        self._error = error
        self._moved.set()
        if self._channel is not None:
            self._channel.post(0, Ended(None, error))


def generation(inputs: InputProcessor, prompt: Prompt, params: SamplingParams | None, stream: bool) -> Job:
    """A job: one prompt, read and tokenized beside the engine. With stream its events are unfinished RequestOutputs."""
    request = yield Offload(partial(inputs, Request(prompt, params)))
    (output,) = yield Submit([request], stream)
    while output is None or not output.finished:
        if output is not None:
            yield output
        (output,) = yield Wait()
    return output


def _one_token(engine: Engine) -> Job:
    """A job that takes a step, as cheaply as can be."""
    if not engine.shape.encoder_takes_text:
        return None
    prompt: ExplicitEncoderDecoderPrompt = {"encoder_prompt": {"prompt_tokens": [0]}, "decoder_prompt": None}
    (output,) = yield Submit([Request(prompt, SamplingParams(temperature=0.0, max_tokens=1))])
    return output
