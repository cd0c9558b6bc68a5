"""Executor: the interface between the scheduling side, which decides a step, and the side that computes it.

`transept.core.engine_core` issues each step and then collects it, in order. It passes a StepInput, and receives the
step's number and its StepOutput. Tensors stay on the computing side, which may be in other processes. No torch here.
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
    """Everything a worker needs to build its model and its cache. Can be pickled, for workers in other processes.

    path: the checkpoint's directory. config: resolved for this machine, see `EngineConfig.on_this_machine`. limits: the
    budgets of a step. draft_path: the draft model's directory, if there is one. shares_encoder: True if it reads the
    output of the model's encoder.
    """

    path: Path
    config: EngineConfig
    limits: SchedulerConfig
    draft_path: Path | None = None
    shares_encoder: bool = False


@dataclass(frozen=True)
class Capacity:
    """The workers' number of cache blocks, and how they compute.

    asynchronous: True if they compute concurrently with the host, so that the engine issues a step before it collects
    the previous one.
    num_stages: number of pipeline stages, and so of steps, of different requests, that are in flight at a time.
    num_encoder_layers: number of layers after each of which an encode may pause until a later step; 1: every encode
    takes one step.
    """

    num_device_blocks: int
    num_host_blocks: int
    asynchronous: bool
    num_stages: int = 1
    num_encoder_layers: int = 1


class Executor(ABC):
    """Runs steps on one device or several.

    capacity: set by the constructor; does not change until the executor is closed.
    """

    capacity: Capacity

    @abstractmethod
    def check_open(self) -> None:
        """Raise a TranseptError with the reason if no step can be issued any more."""

    @abstractmethod
    def issue(self, step: StepInput) -> int:
        """Begin a step. Returns its number, which increases from step to step.

        At most two steps are in flight, or one for each pipeline stage; steps in different stages have no request in
        common. The previous step draws the tokens that are PENDING in this one; with several stages no token is
        PENDING. If one request fails, the output holds its exception, and all others are computed. If `issue` or
        `collect` raises, the whole step has failed and has no output.
        """

    @abstractmethod
    def collect(self, number: int) -> StepOutput:
        """Wait for a step's output. Drops earlier steps that were not collected."""

    def leave_thread(self) -> None:  # noqa: B027  # most executors hold nothing that belongs to a thread
        """Let another thread issue the next step: it restarts an encode that this thread began."""

    @abstractmethod
    def close(self) -> None:
        """Free the model and the cache. No step can be issued afterwards."""
