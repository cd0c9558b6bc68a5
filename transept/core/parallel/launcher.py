"""Launcher: starts the processes of an engine with several ranks, and connects to them. No torch here.

`transept.core.execution.multi_process` uses EngineConfig.launcher. Without one, ranks are programs on this machine
(`transept.core.parallel.local_processes`); `transept.cluster.RankActors` starts them as Ray actors.
"""

from __future__ import annotations

import signal
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass


class RankProcess(ABC):
    """A rank's process, as the engine's process sees it.

    name: its name in errors, such as "process 123". socket: the connection to it. links: the process's descriptors of
    sockets to other pipeline stages, by stage; without them stages use torch.distributed.
    """

    name: str
    socket: socket.socket
    links: Mapping[int, int] = {}

    @abstractmethod
    def poll(self) -> int | None:
        """Return its exit code, below 0 for the signal that ended it; None while it runs."""

    @abstractmethod
    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended, at most `timeout` seconds. Returns True if it has."""

    @abstractmethod
    def kill(self) -> None:
        """End the process at once, without waiting for its end. Raises nothing."""

    def end(self) -> str | None:
        """Return how it ended, in words; None while it runs."""
        code = self.poll()
        if code is None:
            return None
        if code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return f"exited (status {code})"


@dataclass(frozen=True)
class Launched:
    """The processes of all ranks, in their order. release: frees their resources, once all have ended."""

    processes: Sequence[RankProcess]
    release: Callable[[], None] = lambda: None


class Launcher(ABC):
    """Starts ranks. It must be picklable, as EngineConfig is, and may start the ranks of many engines.

    is_local: True if ranks see this machine's GPUs; rank i then uses GPU i.
    """

    is_local = True

    @abstractmethod
    def launch(self, size: int, num_stages: int, num_threads: int, device: str) -> Launched:
        """Start ranks, which run WorkerProcess: `size` for each pipeline stage, in the order of stages.

        num_threads: of each rank. device: ``"cpu"``, or ``"cuda"`` if each rank needs a GPU.
        Raises TranseptError; no process is left behind then.
        """
