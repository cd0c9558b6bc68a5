"""Executor: the seam between the scheduling side, which decides what a step computes, and the side that computes it.

Driven by `transept.core.engine_core`: each step is issued, then collected, in order. StepInput goes over, a number and
StepOutput come back. Tensors stay on the other side, which may be in other processes. No torch here.
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
    """The workers' room in cache blocks, and how they compute.

    asynchronous: True if they compute beside the host, so that a step is best issued before the last one is collected.
    num_stages: of a pipeline; it computes that many steps of different requests at a time.
    num_encoder_layers: after each of which an encode may stop and go on in another step; 1: it takes one step.
    """

    num_device_blocks: int
    num_host_blocks: int
    asynchronous: bool
    num_stages: int = 1
    num_encoder_layers: int = 1


class Executor(ABC):
    """Runs steps on one device or several.

    capacity: known once the executor is made, and the same until it is closed.
    """

    capacity: Capacity

    @abstractmethod
    def check_open(self) -> None:
        """Raise a TranseptError with the reason if no step can be issued any more."""

    @abstractmethod
    def issue(self, step: StepInput) -> int:
        """Begin a step. Returns its number, which rises from step to step.

        At most two steps are under way, or one for each stage of a pipeline, without common requests. A token that is
        PENDING in this step is drawn by the last one; with several stages there is none.
        An exception while computing one request is in the output, and all others are computed. An exception of `issue`
        or `collect` itself concerns the whole step, which then has no output.
        """

    @abstractmethod
    def collect(self, number: int) -> StepOutput:
        """Wait for a step's output. Earlier steps that were not collected are forgotten."""

    def leave_thread(self) -> None:  # noqa: B027  # most executors hold nothing that belongs to a thread
        """Let another thread issue the next step: an encode that this one began is begun anew."""

    @abstractmethod
    def close(self) -> None:
        """Free the model and the cache. No step can be issued afterwards."""
