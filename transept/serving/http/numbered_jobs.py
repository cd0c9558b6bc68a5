"""A job among several of one request: its events bear its number, and it ends alone."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Any

from transept.core.jobs.job import Gather, Job, Offload, Submit, Wait
from transept.errors import TranseptError


@dataclass(frozen=True)
class Ended:
    """An event: a job has ended. result: what it returned, or the TranseptError that it raised."""

    index: int
    result: Any


def numbered(index: int, job: Job) -> Job:
    """The job with ``(index, event)`` in place of each event, and an Ended as the last one."""
    step, answer = job.send, None
    with closing(job):
        while True:
            try:
                asked = step(answer)
            except StopIteration as end:
                yield Ended(index, end.value)
                return
            except TranseptError as error:
                yield Ended(index, error)
                return
            if not isinstance(asked, Submit | Wait | Offload | Gather):
                yield index, asked
                step, answer = job.send, None
                continue
            try:
                step, answer = job.send, (yield asked)
            except Exception as error:
                step, answer = job.throw, error
