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
from transept.core.jobs.rewriting import rewritten
from transept.errors import ParameterError


def in_context(job: Job) -> Job:
    """Run each step of a job, and the functions and jobs that it yields, with the caller's context variables."""
    return _steps(job, copy_context())


def _steps(job: Job, context: Context) -> Job:
    return rewritten(job, partial(_in_context, context), context.run)


def _in_context(context: Context, asked: Any) -> Any:
    if isinstance(asked, Offload):
        return replace(asked, function=partial(context.copy().run, asked.function))
    if isinstance(asked, Gather):
        return replace(asked, jobs=_jobs(iter(asked.jobs), context))
    return asked


def _jobs(jobs: Iterator[Any], context: Context) -> Iterator[Any]:
    """Yield the jobs of a Gather, each created and run in the context."""
    while (job := context.run(next, jobs, None)) is not None:
        try:
            check_job(job)
        except ParameterError:
            yield job  # the runner reports the error
        else:
            yield _steps(job, context.copy())
