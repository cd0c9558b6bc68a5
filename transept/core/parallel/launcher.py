"""Launcher: how the processes of an engine with several ranks are started and reached. No torch here.

`transept.core.execution.multi_process` launches ranks by EngineConfig.launcher. Without one they are programs on this
machine (`transept.core.parallel.local_processes`); `transept.cluster.RankActors` starts them as Ray actors.
"""

from __future__ import annotations

import os
import signal
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


def usable_cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class RankProcess(ABC):
    """A rank's process, as the engine's process sees it.

    name: what errors call it, such as "process 123". socket: its orders go over it, and its answers come back.
    links: descriptors that the process has of sockets to other pipeline stages, by stage; without them stages use
    torch.distributed.
    """

    name: str
    socket: socket.socket
    links: Mapping[int, int] = {}

    @abstractmethod
    def poll(self) -> int | None:
        """Its exit code, below 0 the signal that ended it; None while it runs."""

    @abstractmethod
    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended, so many seconds at most. Returns whether it has."""

    @abstractmethod
    def kill(self) -> None:
        """End it, whatever it does; `wait` tells when it has ended. Raises nothing."""

    def end(self) -> str | None:
        """How it has ended, in words; None while it has not."""
        code = self.poll()
        if code is None:
            return None
        if code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return f"ended by itself (status {code})"


@dataclass(frozen=True)
class Launched:
    """The processes of all ranks, in their order. release: gives back what was taken for them, once all have ended."""

    processes: Sequence[RankProcess]
    release: Callable[[], None] = lambda: None


class Launcher(ABC):
    """Starts ranks. It pickles, as EngineConfig does, and may start those of many engines.

    is_local: whether ranks see this machine's GPUs, and each takes the one of its number.
    """

    is_local = True

    @abstractmethod
    def launch(self, size: int, num_stages: int, num_threads: int, device: str) -> Launched:
        """Start ranks, which run WorkerProcess: `size` for each pipeline stage, those of the first stage first.

        num_threads: of each. device: ``"cpu"``, or ``"cuda"`` where each needs a GPU.
        Raises TranseptError, and then nothing stays behind.
        """
