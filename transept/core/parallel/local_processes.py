"""LocalProcesses: the launcher of ranks as programs of their own on this machine, the one that engines have by default.

They are started neither by a fork nor by multiprocessing, so that a script that makes an engine is not run again.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping

from transept.core.parallel.launcher import Launched, Launcher, RankProcess
from transept.core.parallel.local_channels import LocalChannels

PROGRAM = "transept.core.execution.worker_main"


class LocalProcess(RankProcess):
    """A program that runs `PROGRAM`.

    memory: descriptor of what ranks exchange tensors through, if they do so. links: see RankProcess.
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
                stdout=2,  # this process's output is not theirs to write into
                pass_fds=[theirs.fileno(), *given, *links.values()],
                env=environment,
                process_group=0,  # a terminal's Ctrl-C goes to the parent alone, which decides
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
    """See the module. What ranks reach each other by is of `LocalChannels`."""

    def launch(self, size: int, num_stages: int, num_threads: int, device: str) -> Launched:
        """See Launcher."""
        channels = LocalChannels(size, num_stages, on_cpu=device == "cpu")
        processes: list[LocalProcess] = []
        try:
            for rank in range(size * num_stages):
                processes.append(LocalProcess(num_threads, *channels.of(rank)))
        except BaseException:
            for process in processes:
                process.kill()
                process.wait()
            raise
        finally:
            channels.close()
        return Launched(processes)
