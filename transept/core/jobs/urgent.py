"""Urgent jobs, whose requests and functions start before those of other jobs. Used by live transcription.

An urgent request waits for room like any other: it preempts no running request. On a CPU, other running requests pause
between two steps until no urgent one runs. So does an encode that takes several steps. Both keep their blocks. On a
GPU, all share their steps. If blocks run short, the scheduler preempts requests that are not urgent first. Urgent
requests keep their order among themselves. Other requests get only the time and the room that urgent ones leave: a
steady flow of these starves them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from transept.core.jobs.job import Job, Offload, Submit
from transept.core.jobs.rewriting import rewritten


def urgent(job: Job) -> Job:
    """Make all requests and functions of a job urgent. Jobs that it gathers stay as they are."""
    return rewritten(job, _urgent)


def _urgent(asked: Any) -> Any:
    return replace(asked, urgent=True) if isinstance(asked, Submit | Offload) else asked
