"""RemoteWorker: a worker's process, its connection, and what it last told. Made by `multi_process`."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from transept.core.execution.connection import Connection

PROGRAM = "transept.core.execution.worker_main"
NOTHING_SECONDS = 0.1  # of processor time, which the thread that tells of itself takes in some minutes
RUNNING = 1 << 10  # no process's exit code


class RemoteWorker:
    """One process as its parent sees it. Starts it.

    memory: descriptor of what ranks exchange tensors through, if they do so. links: of sockets to other pipeline
    stages, by stage; the process has them under the same numbers. ready: what it told once it had loaded the
    model. works: whether it has something to do, and does not wait for another rank. progress: exchanges with other
    ranks, and orders done.

    Times, of time.monotonic: heard: when it last told of itself; progressed: when it had last got on, or had nothing to
    do; computed: when it had last taken processor time, or had nothing to do.
    """

    def __init__(self, rank: int, num_threads: int, memory: int | None, links: Mapping[int, int]) -> None:
        given = [] if memory is None else [memory]
        ours, theirs = socket.socketpair()
        with theirs:
            environment = {
                **os.environ,
                "OMP_NUM_THREADS": str(num_threads),
                "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
                "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
            }
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", PROGRAM, *map(str, (theirs.fileno(), os.getpid(), *given))],
                stdin=subprocess.DEVNULL,
                stdout=2,  # this process's output is not theirs to write into
                pass_fds=[theirs.fileno(), *given, *links.values()],
                env=environment,
            )
        self.rank, self.connection, self.links = rank, Connection(ours), links
        self.ready: tuple[Any, ...] | None = None
        self.works = False
        self.progress = (0, 0)
        self.heard = self.progressed = self.computed = time.monotonic()
        self._processor_seconds = 0.0

    def beat(self, works: bool, processor_seconds: float, progress: tuple[int, int]) -> None:
        """Note what the worker tells of itself."""
        self.heard = time.monotonic()
        if progress != self.progress or not works:
            self.progress, self.progressed = progress, self.heard
        if self.progressed == self.heard or processor_seconds > self._processor_seconds + NOTHING_SECONDS:
            self.computed, self._processor_seconds = self.heard, processor_seconds
        self.works = works

    @property
    def exit_code(self) -> int:
        """Of the process: below 0 the signal that ended it, and large while it runs."""
        code = self.process.poll()
        return RUNNING if code is None else code

    def end(self) -> str | None:
        """How the process has ended; None while it has not."""
        code = self.exit_code
        if code == RUNNING:
            return None
        if code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return f"ended by itself (status {code})"
