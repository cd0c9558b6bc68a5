"""LocalProcesses: the default launcher, which starts ranks as programs on this machine. Used by `multi_process`.

It uses neither fork nor multiprocessing, so a script that makes an engine is not run again in the ranks.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack

from transept.core.parallel import shared_memory
from transept.core.parallel.connection import anonymous_memory
from transept.core.parallel.launcher import Launched, Launcher, RankProcess

PROGRAM = "transept.core.execution.worker_main"


class LocalProcess(RankProcess):
    """A program that runs `PROGRAM`.

    memory: descriptor of the memory through which the ranks of its stage exchange tensors; None: they use
    torch.distributed. links: see RankProcess.
    """

    def __init__(self, num_threads: int, memory: int | None, links: Mapping[int, int]) -> None:
        self.links = links
        given = [] if memory is None else [memory]
        self.socket, theirs = socket.socketpair()
        with theirs:
            environment = {
                **os.environ,
                "OMP_NUM_THREADS": str(num_threads),
                "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
                "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
            }
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", PROGRAM, *map(str, (theirs.fileno(), os.getpid(), *given))],
                stdin=subprocess.DEVNULL,
                stdout=2,  # stderr: stdout belongs to the engine's process
                pass_fds=[theirs.fileno(), *given, *links.values()],
                env=environment,
                process_group=0,  # a terminal's Ctrl-C reaches only the engine's process
            )
        self.name = f"process {self._process.pid}"

    def poll(self) -> int | None:
        """See RankProcess."""
        return self._process.poll()

    def wait(self, timeout: float | None = None) -> bool:
        """See RankProcess."""
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """See RankProcess."""
        self._process.kill()


class LocalProcesses(Launcher):
    """Starts programs, with unnamed memory for the ranks of a stage and socket pairs between stages."""

    def launch(self, size: int, num_stages: int, num_threads: int, device: str) -> Launched:
        """See Launcher."""
        processes: list[LocalProcess] = []
        with ExitStack() as ours:  # this process's descriptors, closed once the ranks have inherited them
            memory: list[int | None] = [None] * num_stages
            if device == "cpu" and shared_memory.serves():
                for stage in range(num_stages):
                    memory[stage] = descriptor = anonymous_memory(shared_memory.memory_bytes(size))
                    ours.callback(os.close, descriptor)
            links = _linked(size, num_stages, ours) if shared_memory.is_local() else {}
            try:
                for rank in range(size * num_stages):
                    processes.append(LocalProcess(num_threads, memory[rank // size], links.get(rank, {})))
            except BaseException:
                for process in processes:
                    process.kill()
                    process.wait()
                raise
        return Launched(processes)


def _linked(size: int, num_stages: int, ours: ExitStack) -> dict[int, dict[int, int]]:
    """Return each rank's socket descriptors, by the stage at the other end.

    They connect neighbouring stages, and the last stage to every other.
    """
    links: dict[int, dict[int, int]] = {rank: {} for rank in range(size * num_stages)}
    for rank in range(size):
        for stage in range(num_stages - 1):
            for other in {stage + 1, num_stages - 1}:
                one, two = (ours.enter_context(end) for end in socket.socketpair())
                links[stage * size + rank][other] = one.fileno()
                links[other * size + rank][stage] = two.fileno()
    return links
