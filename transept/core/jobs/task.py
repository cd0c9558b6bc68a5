"""Task: the state of one running job, and the order of its events and its children's events.

Made and advanced by `transept.core.jobs.tasks`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from transept.core.jobs.job import Channel, Job, Signal
from transept.core.jobs.offload import Offloaded
from transept.core.outputs import RequestOutput


@dataclass(eq=False)
class Task:
    """A running job: its pending requests, its children, and the events that it has not passed on."""

    job: Job
    channel: Channel
    index: int  # of the job in its channel; a child has its parent's
    parent: Task | None = None
    depth: int = 0  # parents above it
    requests: dict[str, RequestOutput | None] = field(default_factory=dict)  # the last Submit's, by request id
    streams: bool = False  # True if the last Submit streams
    offloaded: Offloaded | None = None
    signal: Signal | None = None  # that it waits for
    resume: Callable[[], None] | None = None  # called by the signal
    long_running: bool = False  # True if an offloaded function of this task or of its parent was
    waiting_children: Iterator[Job] | None = None  # the last Gather's jobs that have not started
    children: list[Task] = field(default_factory=list)  # the started ones, in order
    number: int = 0  # of this task among its parent's children
    max_children: int = 0  # that may be at work, set with waiting_children
    num_at_work: int = 0  # started children that have not ended
    unreleased: deque[Task] = field(default_factory=deque)  # children from the first one that has not ended
    merge: Callable[[int, Any], Iterable[Any]] | None = None  # the last Gather's, of the children's events
    merge_failure: Exception | None = None  # raised by merge
    held: list[Any] = field(default_factory=list)  # events held back while an older sibling is running
    ended: bool = False
    result: Any = None

    @property
    def is_answered(self) -> bool:
        """True if all its requests are finished."""
        return all(output is not None and output.finished for output in self.requests.values())

    @property
    def root(self) -> Task:
        """The job that gathered this one, directly or not; the task itself without a parent."""
        return self if self.parent is None else self.parent.root

    def tell(self, event: Any) -> None:
        """Pass on an event of the job."""
        self.held.append(event)
        self.release()

    def release(self) -> None:
        """Pass on the held events: merged at once, or, without `merge`, once all older siblings have ended."""
        parent = self.parent
        if parent is None:
            for event in self.held:
                self.channel.post(self.index, event)
        elif parent.merge is not None:
            parent.merge_events(self.number, self.held)
            parent.release()
        elif self is parent.unreleased[0]:
            parent.held += self.held
            parent.release()
        else:
            return
        self.held = []

    def release_children(self) -> None:
        """Pass on the children's held events, up to and including the first child that has not ended."""
        while self.unreleased:
            oldest = self.unreleased[0]
            if oldest.held:
                oldest.release()
            if not oldest.ended:
                return
            self.unreleased.popleft()

    def merge_events(self, number: int, events: Iterable[Any]) -> None:
        """Merge a child's events into the task's, as its Gather asks; after a failed merge, drop them."""
        assert self.merge is not None
        try:
            for event in events if self.merge_failure is None else ():
                self.held += self.merge(number, event)
        except Exception as failure:
            self.merge_failure = failure

    def forget_children(self) -> None:
        """Reset the state of the last Gather."""
        self.children, self.waiting_children, self.merge, self.merge_failure = [], None, None, None
        self.unreleased.clear()
        self.num_at_work = 0
