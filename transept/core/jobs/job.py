"""Jobs: coroutine-like generators that submit requests to the engine. Many jobs share one engine.

A `Job` is a generator that

- yields ``Submit(requests)`` and is sent the list of their RequestOutputs, in order, once all are finished. If one is
  refused or fails, the runner aborts the others and raises its error in the job, at this ``yield``;
- yields ``Offload(function)`` and is sent the function's result; the function runs in another thread, concurrently with
  the engine;
- yields ``Gather(jobs)`` and is sent the list of these jobs' results, once all of them have ended;
- yields a ``Signal`` and is resumed once any thread has set it, such as when audio has arrived;
- yields any other object, an event, for the reader of the job;
- returns its result.

So an algorithm reads like a loop over one recording or one document, and composes with ``yield from``. It does not see
the batch that its requests share with other jobs' requests. `transept.core.jobs.runner` runs jobs.
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
from transept.options import refusal

# Yields Submit | Wait | Offload | Gather | Signal | an event, and returns its result.
Job: TypeAlias = Generator[Any, Any, Any]


@dataclass(frozen=True)
class Submit:
    """Requests whose outputs a job waits for.

    requests: PreparedRequests, such as those from an Offload of the engine's input processor, or Requests, which are
        prepared between two steps.
    stream: True to send the job the outputs after every step in which one of the requests took part, with None for
        those that have not begun. The job then yields Wait() until all of them are finished.
    urgent: True to start them before all waiting requests that are not urgent. Use it for short requests, such as live
        transcription's, because other requests start only in the room that urgent ones leave.
    """

    requests: Sequence[Request | PreparedRequest]
    stream: bool = False
    urgent: bool = False

    def __post_init__(self) -> None:
        given: Any = self.requests
        requests = tuple(given) if isinstance(given, Sequence) else (None,)
        if not all(isinstance(each, Request | PreparedRequest) for each in requests):
            raise ParameterError(f"Submit takes a list of Requests, not {shown(given)}", param="requests", value=given)
        object.__setattr__(self, "requests", requests)  # a copy: the caller may change its list


@dataclass(frozen=True)
class Wait:
    """Wait for the next outputs of a streaming Submit. The job gets a ParameterError if all are finished."""


@dataclass(frozen=True)
class Offload:
    """A function to call in another thread, concurrently with the engine. Its exception is raised in the job.

    slow: True for a function that may take minutes. Such functions have their own threads, so they delay no others.
    urgent: True for a function of a few milliseconds whose result a user waits for. Such functions have their own
        threads with the engine's priority, so others do not delay them.
    """

    function: Callable[[], Any]
    slow: bool = False
    urgent: bool = False

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise refusal(self, f"Offload takes a function without arguments, not {shown(self.function)}", "function")


@dataclass(frozen=True)
class Gather:
    """Jobs that run concurrently, for a job that waits for all of them.

    jobs: an iterable, consumed lazily as the engine has room, so that each job may compute its features when it starts.
        Their events are posted in the order of the jobs. If a job raises, the waiting job gets that error and the other
        jobs are closed.
    merge: called as ``merge(number, event)`` for each event, with the job's number from 0. The events that it returns
        are posted at once instead. If it raises, the waiting job gets the error once all jobs have ended.
    max_jobs: number of jobs that may run at a time; the engine may run fewer.
    """

    jobs: Iterable[Job]
    merge: Callable[[int, Any], Iterable[Any]] | None = None
    max_jobs: int | None = None

    def __post_init__(self) -> None:
        jobs: Any = self.jobs
        if not isinstance(jobs, Iterable):
            raise refusal(self, f"Gather takes jobs, a list or what yields them, not {shown(jobs)}", "jobs")
        if not (self.merge is None or callable(self.merge)):
            raise refusal(
                self, f"Gather merges events with a function (number, event), not {shown(self.merge)}", "merge"
            )


class Signal:
    """Something that happens outside the engine. A job that yields it sleeps until `set`, at no cost.

    `set` counts once: a signal that was set before the job yields it resumes the job at once, and is clear afterwards,
    however often it was set. One job at a time may wait for a signal.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_set = False
        self._resume: Callable[[], None] | None = None  # set by `listen` while a job waits

    def set(self) -> None:
        """Resume the job that waits, or the next one that will. Called from any thread; never waits."""
        with self._lock:
            resume, self._resume = self._resume, None
            self._is_set = resume is None
        if resume is not None:
            resume()

    def listen(self, resume: Callable[[], None]) -> bool:
        """Call a function once, at the next `set`. Returns False, and forgets it, if the signal was set before.

        Raises ParameterError if another job waits. Called by `jobs.tasks`.
        """
        with self._lock:
            if self._resume is not None:
                message = "another job waits for this signal already; give each job a separate Signal"
                raise ParameterError(message, param="signal", value=self)
            was_set, self._is_set = self._is_set, False
            self._resume = None if was_set else resume
        return not was_set

    def forget(self, resume: Callable[[], None]) -> None:
        """Forget a function given to `listen`, because its job is closed. Another job may wait meanwhile."""
        with self._lock:
            if self._resume is resume:
                self._resume = None


def check_job(job: Any) -> None:
    """Raise ParameterError if an object is not a job, or has been started."""
    if not isinstance(job, Generator):
        message = f"a job is a generator, such as `work()` of `def work(): yield ...`, not {shown(job)}"
        raise ParameterError(message, param="job", value=job)
    started = getattr(job, "gi_suspended", False) or getattr(job, "gi_running", False)
    if started or getattr(job, "gi_frame", job) is None:
        message = "a job runs once, and this one has been started, or closed, before"
        raise ParameterError(message, param="job", value=job)


class Channel:
    """A queue of events of some jobs, read by one thread.

    events: (index of the job, event), in order of arrival. unfinished: indices of the jobs that have not ended.
    num_requests: number of their requests in the engine. idles: True if the reader keeps driving the engine while the
    engine has no work. news: set by every `post`, and to let a waiting reader check the channel again.
    """

    def __init__(self, *, idles: bool = False) -> None:
        self.events: deque[tuple[int, Any]] = deque()
        self.unfinished: set[int] = set()
        self.num_requests = 0
        self.idles = idles
        self.news = threading.Event()
        self._lock = threading.Lock()  # of events and unfinished: a job ends together with its last event

    @property
    def ended(self) -> bool:
        """True if all jobs have ended and all events have been taken."""
        with self._lock:
            return not self.unfinished and not self.events

    def post(self, index: int, event: Any, *, last: bool = False) -> None:
        """Add an event, from any thread. last: True if the job ends with it."""
        with self._lock:
            self.events.append((index, event))
            if last:
                self.unfinished.discard(index)
        self.news.set()

    def take(self) -> tuple[int, Any]:
        """Remove and return the first event. The channel must have one."""
        with self._lock:
            return self.events.popleft()


@dataclass(frozen=True)
class Crash:
    """The last event of a job that raised an exception other than a TranseptError. Its reader raises that again."""

    error: Exception
