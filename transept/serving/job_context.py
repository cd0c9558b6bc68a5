"""Jobs with context variables: the engine's thread runs a job, which so knows the request that it belongs to.

Called by `async_engine`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import Context, copy_context
from functools import partial
from typing import Any

from transept.core.jobs import Gather, Job, Offload, check_job
from transept.errors import ParameterError


def in_context(job: Job) -> Job:
    """The job, each step of which has the caller's context variables, as do the functions and jobs that it yields."""
    return _steps(job, copy_context())


def _steps(job: Job, context: Context) -> Job:
    step, answer = job.send, None
    try:
        while True:
            try:
                asked = context.run(step, answer)
            except StopIteration as end:
                return end.value
            finally:
                answer = None  # an error would keep this frame, which keeps the error
            if isinstance(asked, Offload):
                asked = Offload(partial(context.copy().run, asked.function))
            elif isinstance(asked, Gather):
                asked = Gather(_jobs(iter(asked.jobs), context), asked.merge)
            try:
                step, answer = job.send, (yield asked)
            except Exception as error:
                step, answer = job.throw, error
    finally:
        context.run(job.close)


def _jobs(jobs: Iterator[Any], context: Context) -> Iterator[Any]:
    """Jobs of a job, each made and run in its context."""
    while (job := context.run(next, jobs, None)) is not None:
        try:
            check_job(job)
        except ParameterError:
            yield job  # the runner says what is wrong
        else:
            yield _steps(job, context.copy())
