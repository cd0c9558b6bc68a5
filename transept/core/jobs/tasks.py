"""JobTasks: the state of all jobs over one engine, and the rules by which they wait and resume.

Used only by `transept.core.jobs.runner.JobRunner`, in the thread that drives the engine.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any, TypeAlias

from transept.core.engine_core import EngineCore
from transept.core.jobs.job import Channel, Crash, Gather, Job, Offload, Signal, Submit, Wait, check_job
from transept.core.jobs.offload import Offloaded
from transept.core.jobs.task import Task
from transept.core.jobs.tracebacks import release_frames
from transept.core.outputs import RequestOutput
from transept.core.request.input_processor import InputProcessor
from transept.core.request.inputs import PreparedRequest
from transept.core.scheduling.scheduler import id_in_use
from transept.core.scheduling.sequence_group import SequenceGroup
from transept.errors import ParameterError, RequestFailedError, TranseptError, is_interruption

logger = logging.getLogger(__name__)

MAX_GATHERED = 16  # running jobs of one Gather: enough for a batch, few enough that events arrive steadily
MAX_DEPTH = 64  # of jobs that gather jobs: each level takes some frames of Python's stack
STARTED_A_TURN = 64  # jobs of Gathers started between two steps, so that many jobs do not delay a step

NO_JOB: Any = object()  # the end of an iterator, which may yield anything

OffloadCall: TypeAlias = Callable[[Offload, Callable[[Offloaded], None], bool], Offloaded]


class JobTasks:
    """All running jobs, and the requests that belong to no job.

    Invariant between calls: every task that has not ended waits for requests, another thread, a signal, or children.

    bare: requests of Engine.add_request, by request id; None for those that took part in no step since `take_bare`.
    """

    def __init__(
        self,
        core: EngineCore,
        inputs: InputProcessor,
        max_num_seqs: int,
        offload: OffloadCall,
        put: Callable[[Callable[[], None]], None],
    ) -> None:
        self.core = core
        self.inputs = inputs
        self.max_num_seqs = max_num_seqs
        self.bare: dict[str, SequenceGroup | None] = {}
        self._offload = offload
        self._put = put  # has the driving thread call a function between two steps
        self.listening: set[Task] = set()  # that wait for a signal
        self._roots: dict[Channel, set[Task]] = {}
        self._owners: dict[str, Task] = {}  # task of each unfinished request, by request id
        self._parents: list[Task] = []  # tasks with children that have not started, oldest first
        self._answered: dict[Task, None] = {}  # tasks with new outputs
        self._numbers = count()  # of requests of jobs

    def start(self, job: Job, channel: Channel, index: int) -> None:
        """Run a job until it waits for something."""
        if index not in channel.unfinished:
            return  # it has been started before
        task = Task(job, channel, index)
        with self._working_on(task):
            self._roots.setdefault(channel, set()).add(task)
            self._advance(task)

    def drop(self, channel: Channel) -> None:
        """Close a channel's jobs and abort their requests."""
        for task in self._roots.pop(channel, set()):
            self._drop(task)
        channel.unfinished.clear()
        channel.news.set()

    def add_bare(self, request_id: str, request: PreparedRequest) -> None:
        """Queue a request of Engine.add_request. Raises what EngineCore.add raises. `take_bare` frees the id."""
        if request_id in self.bare:
            raise id_in_use(request_id)
        self.bare[request_id] = None
        try:
            self.core.add(request_id, request)
        except BaseException:
            del self.bare[request_id]
            raise

    def abort_bare(self, request_id: str) -> None:
        """Drop a request of Engine.add_request; do nothing for an unknown id."""
        if request_id in self.bare:
            del self.bare[request_id]
            self.core.abort(request_id)

    def take_bare(self) -> list[RequestOutput]:
        """Return the current outputs of the user's requests that took part in steps since the last call."""
        outputs = [self.core.output(group) for group in self.bare.values() if group is not None]
        for output in outputs:
            if output.finished:
                del self.bare[output.request_id]
            else:
                self.bare[output.request_id] = None
        return outputs

    def distribute(self) -> None:
        """Distribute the outputs of a step, and resume the jobs that have all of their outputs."""
        while self.core.took_part:  # removed afterwards, so that an interruption loses none
            self._give_output(self.core.took_part[0])
            self.core.took_part.popleft()
        while self._answered:
            task = next(iter(self._answered))
            with self._working_on(task):
                self._answer(task)
            self._answered.pop(task, None)

    def start_children(self) -> bool:
        """Start jobs of `Gather` while there is room, the oldest `Gather` first. Return True if more could start."""
        for _ in range(STARTED_A_TURN):
            have_room = (
                each
                for each in self._parents
                if each.num_at_work < each.max_children and each.channel.num_requests < self.max_num_seqs
            )
            if (parent := next(have_room, None)) is None:
                return False
            with self._working_on(parent):
                self._start_child(parent)
        return True

    def _start_child(self, parent: Task) -> None:
        assert parent.waiting_children is not None
        try:
            job = next(parent.waiting_children, NO_JOB)
            if job is not NO_JOB:
                check_job(job)
        except Exception as error:  # of the iterable of jobs
            self._close_children(parent)
            self._advance(parent, error=error)
            return
        if job is NO_JOB:
            self._parents.remove(parent)
            parent.waiting_children = None
            self._join(parent)
            return
        child = Task(job, parent.channel, parent.index, parent, parent.depth + 1, long_running=parent.long_running)
        child.number = len(parent.children)
        parent.children.append(child)
        parent.unreleased.append(child)
        parent.num_at_work += 1
        self._advance(child)

    def _give_output(self, group: SequenceGroup) -> None:
        """Record a request's output of a step for its job, or for Engine.step."""
        task = self._owners.get(group.request_id)
        if task is None:
            if group.request_id in self.bare:
                self.bare[group.request_id] = group
            return  # otherwise, its job has been closed since the step
        if not (group.finished or task.streams):
            return
        output = self.core.output(group)
        task.requests[group.request_id] = output
        self._answered[task] = None
        if output.finished:
            del self._owners[group.request_id]
            task.channel.num_requests -= 1

    def _answer(self, task: Task) -> None:
        """Resume a job if its requests are answered."""
        outputs = list(task.requests.values())
        error = next((output.error for output in outputs if output is not None and output.error is not None), None)
        if error is not None:
            self._abort(task)
            self._advance(task, error=error)
        elif outputs and (task.streams or task.is_answered):
            self._advance(task, outputs)

    def _advance(self, task: Task, answer: Any = None, error: Exception | None = None) -> None:
        """Resume a job with an answer, or raise an error in it, until it waits again or ends."""
        while True:
            try:
                event = task.job.send(answer) if error is None else task.job.throw(error)
            except StopIteration as end:
                return self._end(task, end.value)
            except BaseException as failure:
                if is_interruption(failure):
                    raise
                answer = error = None  # else the traceback's own frame would refer to the error: a cycle
                return self._fail(task, failure)
            answer = error = None
            # Not isinstance, which would call the event's code.
            if not issubclass(type(event), Wait | Gather | Offload | Signal | Submit):
                task.tell(event)
                continue
            try:
                if self._waits_for(task, event):
                    return None
                answer = []  # of no requests
            except Exception as refusal:  # of any kind: it is raised in this job alone
                self._abort(task)
                error = refusal

    def _waits_for(self, task: Task, event: Wait | Gather | Offload | Signal | Submit) -> bool:
        """Begin the work of an event. Return False if the job need not wait. Raises the error of refused work."""
        if isinstance(event, Wait):
            if task.is_answered:
                message = "all requests are finished: yield Wait() only while a streaming Submit has unfinished ones"
                raise ParameterError(message)
            return True
        self._abort(task)  # a stream that the job has stopped reading
        if isinstance(event, Gather):
            if task.depth >= MAX_DEPTH:
                raise ParameterError(f"jobs gather jobs at most {MAX_DEPTH} deep", param="jobs")
            task.waiting_children, task.merge = iter(event.jobs), event.merge
            task.max_children = min(event.max_jobs or MAX_GATHERED, MAX_GATHERED)
            self._parents.append(task)
            return True
        if isinstance(event, Offload):
            task.offloaded = self._offload(event, lambda future: self._take_back(task, future), task.long_running)
            return True
        if isinstance(event, Signal):
            resume = partial(self._put, partial(self._signalled, task, event))
            if not event.listen(resume):
                return False
            task.signal, task.resume = event, resume
            self.listening.add(task)
            return True
        task.streams = event.stream
        for request in event.requests:
            request_id = next(each for each in map("job-{}".format, self._numbers) if each not in self.bare)
            task.requests[request_id] = None
            task.channel.num_requests += 1
            self._owners[request_id] = task  # first, so that an interruption anywhere aborts the request
            prepared = request if isinstance(request, PreparedRequest) else self.inputs(request)
            self.core.add(request_id, prepared, event.urgent)
        return bool(event.requests)

    def _take_back(self, task: Task, future: Offloaded) -> None:
        """Resume a job with the result of its offloaded function."""
        if task.offloaded is not future:
            return  # the job has been closed
        with self._working_on(task):
            task.offloaded = None
            task.long_running |= future.long_running
            self._advance(task, *_as_answer(*future.take()))  # without a variable that keeps the result alive

    def _signalled(self, task: Task, signal: Signal) -> None:
        """Resume a job whose signal is set."""
        if task.signal is not signal:
            return  # the job has been closed
        with self._working_on(task):
            task.signal = task.resume = None
            self.listening.discard(task)
            self._advance(task)

    @contextmanager
    def _working_on(self, task: Task) -> Iterator[None]:
        """End the job if an interruption such as KeyboardInterrupt occurs here, because its state is unknown."""
        try:
            yield
        except Exception:
            raise
        except BaseException as interruption:
            root = task.root
            self._drop(root)
            if root.index in root.channel.unfinished:  # its result is not posted yet
                self._post_last(root, RequestFailedError.of(interruption))
            raise

    def _end(self, task: Task, result: Any) -> None:
        task.ended, task.result = True, result
        self._abort(task)
        if task.parent is None:
            self._post_last(task, result)
            return
        parent = task.parent
        parent.num_at_work -= 1
        parent.release_children()
        self._join(parent)

    def _fail(self, task: Task, failure: BaseException) -> None:
        error = failure if isinstance(failure, Exception) else RequestFailedError.of(failure)
        release_frames(error)
        task.ended = True
        self._abort(task)
        parent = task.parent
        if parent is None:
            self._post_last(task, error if isinstance(error, TranseptError) else Crash(error))
            return
        self._close_children(parent)
        self._advance(parent, error=error)

    def _post_last(self, task: Task, event: Any) -> None:
        """Post a job's result or error as its last event."""
        roots = self._roots.get(task.channel, set())
        roots.discard(task)
        if not roots:
            self._roots.pop(task.channel, None)
        task.channel.post(task.index, event, last=True)

    def _join(self, parent: Task) -> None:
        """Answer a `Gather` when all its jobs have ended."""
        if parent.waiting_children is None and not parent.num_at_work:
            results, failure = [child.result for child in parent.children], parent.merge_failure
            parent.forget_children()
            self._advance(parent, results, failure)

    def _close_children(self, task: Task) -> None:
        for child in task.children:
            self._drop(child)
        task.forget_children()
        if task in self._parents:
            self._parents.remove(task)

    def _drop(self, task: Task) -> None:
        """Close a job, its children and its requests."""
        self._close_children(task)
        self._abort(task)
        if task.offloaded is not None:
            task.offloaded.cancel()
            task.offloaded = None
        if task.signal is not None and task.resume is not None:
            task.signal.forget(task.resume)
            task.signal = task.resume = None
            self.listening.discard(task)
        if not task.ended:
            task.ended = True
            try:
                task.job.close()
            except Exception:  # of the job's own cleanup
                logger.warning("a job failed while it was closed", exc_info=True)

    def _abort(self, task: Task) -> None:
        for request_id in task.requests:
            if self._owners.pop(request_id, None) is not None:
                self.core.abort(request_id)
                task.channel.num_requests -= 1
        task.requests = {}


def _as_answer(result: Any, error: BaseException | None) -> tuple[Any, Exception | None]:
    """Return the value to send into a job, or the error to raise in it, after an offloaded function."""
    return result, error if error is None or isinstance(error, Exception) else RequestFailedError.of(error)
