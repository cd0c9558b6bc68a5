"""Jobs: pieces of work that ask the engine, many at a time over one engine.

A `Job` is a generator that

- yields ``Submit(requests)`` and is sent the list of their RequestOutputs, in order, once all are finished. When one is
  refused or fails, the others are aborted and its error is raised where the job waits;
- yields ``Offload(function)`` and is sent what the function returned, which ran in another thread beside the engine;
- yields ``Gather(jobs)`` and is sent the list of what these jobs returned, once all of them have ended;
- yields anything else, an event, for whoever reads the job;
- returns its result.

So an algorithm reads like a loop over one recording or one document, composes with ``yield from``, and knows nothing of
the batch that its requests share with those of others. `transept.core.jobs.runner` runs jobs.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from transept.core.request.inputs import PreparedRequest
from transept.core.request.prompts import Request
from transept.errors import ParameterError, shown

Job: TypeAlias = Generator[Any, Any, Any]  # yields Submit | Wait | Offload | Gather | an event, returns its result


@dataclass(frozen=True)
class Submit:
    """Requests whose outputs a job waits for.

    requests: prepared ones, such as by an Offload of the engine's input processor, or Requests, which are prepared
        between two steps.
    stream: the job is sent the outputs after every step in which one of the requests took part, None for those that
        have not begun; it yields Wait() until all of them are finished.
    """

    requests: Sequence[Request | PreparedRequest]
    stream: bool = False

    def __post_init__(self) -> None:
        given: Any = self.requests
        requests = tuple(given) if isinstance(given, Sequence) else (None,)
        if not all(isinstance(each, Request | PreparedRequest) for each in requests):
            raise ParameterError(f"Submit takes a list of Requests, not {shown(given)}")
        object.__setattr__(self, "requests", requests)  # a copy: who made the list may change it


@dataclass(frozen=True)
class Wait:
    """Go on waiting for the requests of a streaming Submit. A ParameterError once all are finished."""


@dataclass(frozen=True)
class Offload:
    """A function to call in another thread, beside the engine. What it raises is raised in the job."""

    function: Callable[[], Any]

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ParameterError(f"Offload takes a function without arguments, not {shown(self.function)}")


@dataclass(frozen=True)
class Gather:
    """Jobs that run beside each other, for a job that waits for all of them.

    jobs: read no further than there is room, so each may make its features when it starts. Their events are passed on
    in the jobs' order. When one raises, the waiting job gets that error and the others are closed.
    merge: called with the number of a job, from 0, and each event of it as it comes; the events that it returns are
        passed on at once, in place of that one. What it raises, the waiting job gets once all jobs have ended.
    """

    jobs: Iterable[Job]
    merge: Callable[[int, Any], Iterable[Any]] | None = None

    def __post_init__(self) -> None:
        jobs: Any = self.jobs
        if not isinstance(jobs, Iterable):
            raise ParameterError(f"Gather takes jobs, a list or what yields them, not {shown(jobs)}")
        if not (self.merge is None or callable(self.merge)):
            raise ParameterError(f"Gather merges events with a function (number, event), not {shown(self.merge)}")


def check_job(job: Any) -> None:
    """Raise ParameterError for what is no job, or has been started."""
    if not isinstance(job, Generator):
        raise ParameterError(f"a job is a generator, such as `work()` of `def work(): yield ...`, not {shown(job)}")
    started = getattr(job, "gi_suspended", False) or getattr(job, "gi_running", False)
    if started or getattr(job, "gi_frame", job) is None:
        raise ParameterError("a job runs once, and this one has been started, or closed, before")


class Channel:
    """What comes of some jobs, for the one thread that reads them.

    events: (index of the job, event), in the order in which they came. unfinished: the jobs' indices.
    num_requests: in the engine. idles: its reader drives the engine on while nothing is under way.
    """

    def __init__(self, *, idles: bool = False) -> None:
        self.events: deque[tuple[int, Any]] = deque()
        self.unfinished: set[int] = set()
        self.num_requests = 0
        self.idles = idles
        self._wake = threading.Event()
        self._lock = threading.Lock()  # over both, so that a job has ended for whoever has taken its last event

    @property
    def ended(self) -> bool:
        """Whether no job is left that could have an event, and none waits to be taken."""
        with self._lock:
            return not self.unfinished and not self.events

    def post(self, index: int, event: Any, *, last: bool = False) -> None:
        """Add an event, from any thread. last: the job ends with it."""
        with self._lock:
            self.events.append((index, event))
            if last:
                self.unfinished.discard(index)
        self._wake.set()

    def take(self) -> tuple[int, Any]:
        """Remove the first event, of which there is one."""
        with self._lock:
            return self.events.popleft()

    def expect(self) -> None:
        """Let `wait` return only for what comes from now on. Events are looked at after this call, not before."""
        self._wake.clear()

    def wait(self, seconds: float) -> None:
        """Return when something has been posted, when `wake` was called, or after so many seconds."""
        self._wake.wait(seconds)

    def wake(self) -> None:
        """Let the reader look again."""
        self._wake.set()


@dataclass(frozen=True)
class Crash:
    """An event: a job raised what is no TranseptError. Its reader raises that again."""

    error: Exception
