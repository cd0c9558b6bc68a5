"""LoopChannel: passes the events of a job in the engine's thread to a task of an event loop.

Used by `transept.serving.async_engine`.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Any

from transept.core.jobs.job import Channel, Crash, Job
from transept.errors import RequestFailedError, TranseptError


class LoopChannel(Channel):
    """A channel whose events are read by a task of an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self._events: asyncio.Queue[Any] = asyncio.Queue()

    def post(self, index: int, event: Any, *, last: bool = False) -> None:
        """See Channel.post."""
        if last:
            self.unfinished.discard(index)
        with contextlib.suppress(RuntimeError):  # the loop is closed, so no task reads
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    async def next(self) -> Any:
        """Wait for and return the next event; the last one is an Ended."""
        event = await self._events.get()
        return Ended(None, event) if isinstance(event, Crash | TranseptError) else event


@dataclass(frozen=True)
class Ended:
    """The last event of a job."""

    value: Any
    error: Exception | Crash | None = None

    def result(self) -> Any:
        """Return the job's result, or raise its exception."""
        if self.error is None:
            return self.value
        raise _as_transept_error(self.error)


def _as_transept_error(error: Exception | Crash) -> TranseptError:
    """Return the error for a reader. The raising frame has no variable for it, which would be a reference cycle."""
    raised = error.error if isinstance(error, Crash) else error
    return raised if isinstance(raised, TranseptError) else RequestFailedError.of(raised)


def with_ended(job: Job) -> Job:
    """Wrap a job so that its result is an Ended, which no event is."""
    return Ended((yield from job))
