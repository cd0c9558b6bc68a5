"""Urgent jobs: their requests and functions start before those of others. Used by live transcription."""

from __future__ import annotations

from dataclasses import replace

from transept.core.jobs.job import Job, Offload, Submit


def urgent(job: Job) -> Job:
    """Make all requests and functions of a job urgent, but not those of jobs that it gathers."""
    step, answer = job.send, None
    try:
        while True:
            try:
                asked = step(answer)
            except StopIteration as end:
                return end.value
            finally:
                answer = None  # else an error and this frame would keep each other alive
            if isinstance(asked, Submit | Offload):
                asked = replace(asked, urgent=True)
            try:
                step, answer = job.send, (yield asked)
            except Exception as error:
                step, answer = job.throw, error
    finally:
        job.close()
