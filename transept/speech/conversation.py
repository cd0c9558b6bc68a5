"""Conversations with the engine: many recordings at once, each driven by a generator that asks and is answered.

An algorithm for one recording, or for one window of it, is a `Job`: a generator that

- yields ``Ask(requests)`` and is sent the list of their RequestOutputs, in order, once all of them are finished;
- yields ``Together(jobs)`` and is sent the list of what these jobs returned, once all of them have ended;
- yields a `Found`, or anything else, for whoever reads the conversation;
- returns its result.

So an algorithm reads like a loop over one recording, composes with ``yield from``, and knows nothing of the batch that
its requests share with those of others. `converse` runs jobs; Transcriber calls it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from transept.core.engine import Engine
from transept.core.outputs import RequestOutput
from transept.core.prompts import Prompt
from transept.core.sampling_params import SamplingParams
from transept.errors import ParameterError, TranseptError
from transept.speech.transcript import Segment

MAX_TOGETHER = 16  # jobs of one Together: enough for a batch, few enough that findings come out all along


@dataclass(frozen=True)
class Ask:
    """Requests whose outputs a job waits for."""

    requests: Sequence[tuple[Prompt, SamplingParams]]


@dataclass(frozen=True)
class Together:
    """Jobs that run beside each other, for a job that waits for all of them.

    jobs: read no further than the engine has room, so each may make its features when it starts. What they find is
    passed on in their order, so no more than MAX_TOGETHER are at work at a time. When one raises, the waiting job gets
    that error and the others are closed.
    """

    jobs: Iterable[Job]


@dataclass(frozen=True)
class Found:
    """What a job is certain of. segments: new ones, in order of time. progress_seconds: how far it has come in all."""

    segments: Sequence[Segment] = ()
    progress_seconds: float = 0.0


Job: TypeAlias = Generator[Any, Any, Any]  # yields Ask | Together | Found, is sent list[...] | None, returns its result


@dataclass(eq=False)
class _Task:
    """A job on its way: what it waits for, and where its findings go."""

    job: Job
    index: int  # of the job among those of the conversation; a child has its parent's
    parent: _Task | None = None
    requests: dict[str, RequestOutput | None] = field(default_factory=dict)  # the last Ask's, by request id
    waiting_children: Iterator[Job] | None = None  # the last Together's jobs that have not started
    children: list[_Task] = field(default_factory=list)  # the started ones, in order
    held: list[Any] = field(default_factory=list)  # found while an older sibling is at work
    ended: bool = False
    result: Any = None

    @property
    def num_at_work(self) -> int:
        """Of its children."""
        return sum(not child.ended for child in self.children)


def converse(engine: Engine, jobs: Iterable[Job], max_jobs: int) -> Generator[tuple[int, Any], None, None]:
    """Run jobs over one engine, at most `max_jobs` at a time, until all have ended.

    jobs: read when there is room for another one. Yields ``(index of the job, event)`` as events come: everything that
    the job found, then what it returned, or the TranseptError that it raised; such a job ends alone. Jobs may end in
    any order.
    Closing the iterator, or an exception that is no TranseptError, closes all jobs and aborts their requests.
    Raises ParameterError when the engine is in use.
    """
    if engine.has_unfinished_requests:
        raise ParameterError("the engine has unfinished requests: read the other transcription to its end first")
    conversation = _Conversation(engine)
    remaining = enumerate(jobs)
    try:
        while True:
            conversation.start_children()
            while conversation.has_room and len(conversation.roots) < max_jobs:
                index, job = next(remaining, (-1, None))
                if job is None:
                    break
                root = _Task(job, index)
                conversation.roots.append(root)
                conversation.advance(root)
                conversation.start_children()
                yield from conversation.take_events()
            yield from conversation.take_events()  # of jobs that ended as their last children did, without a step
            if not conversation.roots:
                return
            conversation.step()
            yield from conversation.take_events()
    finally:
        conversation.close()


class _Conversation:
    """The state of one `converse`: tasks in flight, and events that have not been passed on.

    Invariant between calls: every task that has not ended waits for requests in the engine or for children.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.roots: list[_Task] = []
        self.owners: dict[str, _Task] = {}  # of unfinished requests, by request id
        self.parents: list[_Task] = []  # tasks with children that have not started, oldest first
        self.events: deque[tuple[int, Any]] = deque()
        self.num_requests = 0

    @property
    def has_room(self) -> bool:
        """Whether the engine could run another request at once."""
        return len(self.owners) < self.engine.config.max_num_seqs

    def take_events(self) -> Iterator[tuple[int, Any]]:
        """Hand out what has come up, and forget it."""
        while self.events:
            yield self.events.popleft()

    def step(self) -> None:
        """One step of the engine; jobs whose answers are complete go on."""
        for output in self.engine.step() if self.owners else ():
            task = self.owners.get(output.request_id)
            if output.finished and task is not None:  # None: closed since the step, by the failure of another
                del self.owners[output.request_id]
                task.requests[output.request_id] = output
                if all(task.requests.values()):
                    answers, task.requests = list(task.requests.values()), {}
                    self.advance(task, answers)

    def advance(self, task: _Task, answer: Any = None, error: TranseptError | None = None) -> None:
        """Let a job go on, with an answer or with an error raised where it waits, until it waits again or ends."""
        while True:
            try:
                event = task.job.send(answer) if error is None else task.job.throw(error)
            except StopIteration as end:
                return self._end(task, end.value)
            except TranseptError as failure:
                return self._fail(task, failure)
            answer = error = None
            if isinstance(event, Together):
                task.waiting_children = iter(event.jobs)
                self.parents.append(task)
                return None
            if not isinstance(event, Ask):
                task.held.append(event)
                self._release(task)
            elif event.requests:
                error = self._request(task, event)
                if error is None:
                    return None
            else:
                answer = []

    def start_children(self) -> None:
        """Start jobs of `Together` while the engine has room, those of the oldest first."""
        while self.has_room:
            parent = next((each for each in self.parents if each.num_at_work < MAX_TOGETHER), None)
            if parent is None:
                return
            assert parent.waiting_children is not None
            try:
                job = next(parent.waiting_children, None)
            except TranseptError as error:  # of what makes the jobs
                self._close_children(parent)
                self.advance(parent, error=error)
                continue
            if job is None:
                self.parents.remove(parent)
                parent.waiting_children = None
                self._join(parent)
                continue
            child = _Task(job, parent.index, parent)
            parent.children.append(child)
            self.advance(child)

    def close(self) -> None:
        """Close every job and abort every request."""
        for task in self.roots:
            self._drop(task)
        self.roots.clear()

    def _request(self, task: _Task, ask: Ask) -> TranseptError | None:
        """Give the engine a job's requests, all or, when one is refused, none. Returns the refusal."""
        for prompt, params in ask.requests:
            request_id = f"speech-{self.num_requests}"
            self.num_requests += 1
            try:
                self.engine.add_request(request_id, prompt, params)
            except TranseptError as refusal:
                self._abort(task)
                return refusal
            task.requests[request_id] = None
            self.owners[request_id] = task
        return None

    def _end(self, task: _Task, result: Any) -> None:
        task.ended, task.result = True, result
        if task.parent is None:
            self.roots.remove(task)
            self.events.append((task.index, result))
            return
        for sibling in task.parent.children:
            if sibling.held:  # the way may be free now
                self._release(sibling)
        self._join(task.parent)

    def _fail(self, task: _Task, error: TranseptError) -> None:
        task.ended = True
        parent = task.parent
        if parent is None:
            self.roots.remove(task)
            self.events.append((task.index, error))
            return
        self._close_children(parent)
        self.advance(parent, error=error)

    def _join(self, parent: _Task) -> None:
        """Answer a `Together` when all its jobs have ended."""
        if parent.waiting_children is None and all(child.ended for child in parent.children):
            results = [child.result for child in parent.children]
            parent.children = []
            self.advance(parent, results)

    def _release(self, task: _Task) -> None:
        """Pass a task's findings on, unless an older sibling of it or of its parents is at work."""
        parent = task.parent
        if parent is None:
            self.events.extend((task.index, found) for found in task.held)
        elif all(sibling.ended for sibling in parent.children[: parent.children.index(task)]):
            parent.held += task.held
            self._release(parent)
        else:
            return
        task.held = []

    def _close_children(self, task: _Task) -> None:
        for child in task.children:
            self._drop(child)
        task.children, task.waiting_children = [], None
        if task in self.parents:
            self.parents.remove(task)

    def _drop(self, task: _Task) -> None:
        """Close a job with all that it waits for."""
        self._close_children(task)
        self._abort(task)
        if not task.ended:
            task.ended = True
            task.job.close()

    def _abort(self, task: _Task) -> None:
        for request_id in task.requests:
            self.engine.abort_request(request_id)
            self.owners.pop(request_id, None)
        task.requests = {}
