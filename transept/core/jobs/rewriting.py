"""Jobs whose requests for work are changed on their way to the runner. Used by `jobs.urgent` and the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transept.core.jobs.job import Job


def _call(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def rewritten(job: Job, rewrite: Callable[[Any], Any], call: Callable[..., Any] = _call) -> Job:
    """Wrap a job: it yields ``rewrite(event)`` for each event, and is sent the same answers.

    call: calls the job's ``send``, ``throw`` and ``close`` with their arguments.
    """
    step, answer = job.send, None
    try:
        while True:
            try:
                asked = call(step, answer)
            except StopIteration as end:
                return end.value
            finally:
                answer = None  # else an error and this frame would keep each other alive
            asked = rewrite(asked)
            try:
                step, answer = job.send, (yield asked)
            except Exception as error:
                step, answer = job.throw, error
    finally:
        call(job.close)
