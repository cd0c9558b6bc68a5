"""Jobs with context variables, so that a job in the engine's thread knows the request that it belongs to.

Called by `async_engine`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import Context, copy_context
from dataclasses import replace
from functools import partial
from typing import Any

from transept.core.jobs.job import Gather, Job, Offload, check_job
from transept.errors import ParameterError


def in_context(job: Job) -> Job:
    """Run each step of a job, and the functions and jobs that it yields, with the caller's context variables."""
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
                answer = None  # else an error and this frame would keep each other alive
            if isinstance(asked, Offload):
                asked = replace(asked, function=partial(context.copy().run, asked.function))
            elif isinstance(asked, Gather):
                asked = Gather(_jobs(iter(asked.jobs), context), asked.merge, asked.max_jobs)
            try:
                step, answer = job.send, (yield asked)
            except Exception as error:
                step, answer = job.throw, error
    finally:
        context.run(job.close)


def _jobs(jobs: Iterator[Any], context: Context) -> Iterator[Any]:
    """Yield the jobs of a Gather, each created and run in the context."""
    while (job := context.run(next, jobs, None)) is not None:
        try:
            check_job(job)
        except ParameterError:
            yield job  # the runner reports the error
        else:
            yield _steps(job, context.copy())
