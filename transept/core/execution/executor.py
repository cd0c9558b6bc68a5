"""Executor: the seam between the scheduling side, which decides what a step computes, and the side that computes it.

Driven by `transept.core.engine_core`: each step is issued, then collected, in order. What crosses are StepInput, which
pickles, a number, and StepOutput; tensors stay behind the seam, so that the other side may be another process.
No torch here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from transept.core.config import EngineConfig, SchedulerConfig
from transept.core.scheduling.step import StepInput, StepOutput

CLOSED = "the engine is closed; make another one"


@dataclass(frozen=True)
class WorkerConfig:
    """All that a worker builds its model and its cache from. It pickles, for workers in other processes.

    path: the checkpoint's directory. config: as it is on this machine. limits: of a step.
    """

    path: Path
    config: EngineConfig
    limits: SchedulerConfig


@dataclass(frozen=True)
class Capacity:
    """What the workers have room for, in cache blocks, and how they work.

    asynchronous: whether they compute beside the host, so that a step is best issued before the last one is collected.
    num_stages: of a pipeline; as many steps of different requests are computed at a time.
    """

    num_device_blocks: int
    num_host_blocks: int
    asynchronous: bool
    num_stages: int = 1


class Executor(ABC):
    """Runs steps on one device or several.

    capacity: known once the executor is made, and the same until it is closed.
    """

    capacity: Capacity

    @abstractmethod
    def check_open(self) -> None:
        """Raise TranseptError where nothing can be issued any more, saying why."""

    @abstractmethod
    def issue(self, step: StepInput) -> int:
        """Begin a step. Returns its number, which rises from step to step.

        At most two steps are under way, or one a stage of a pipeline, which have no requests in common. A token that is
        PENDING in this one is the one that the last one draws; with several stages none is.
        What raises while one request is computed is told by `collect`, and everybody else is computed; what `issue` and
        `collect` raise themselves concerns the whole step, of which nothing can be had.
        """

    @abstractmethod
    def collect(self, number: int) -> StepOutput:
        """What came of a step; waits for it. The steps before it are forgotten if they have not been collected."""

    @abstractmethod
    def close(self) -> None:
        """Give back the model and the cache. Nothing can be issued afterwards."""
