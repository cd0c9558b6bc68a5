"""RemoteWorker: a worker's process, its connection, and what it last told. Made by `multi_process`."""

from __future__ import annotations

import time
from typing import Any

from transept.core.parallel.connection import Connection
from transept.core.parallel.launcher import RankProcess

NOTHING_SECONDS = 0.1  # of processor time, which the thread that tells of itself takes in some minutes
RUNNING = 1 << 10  # no process's exit code


class RemoteWorker:
    """One process as its parent sees it.

    ready: what it told once it had loaded the model. works: whether it has something to do, and does not wait for
    another rank. progress: exchanges with other ranks and layers begun, and orders done. has_complained: it told why it
    stops. spent: seconds that the thread which computes has taken of a processor since the worker last got on.

    Times, of time.monotonic: heard: when it last told of itself; progressed: when it had last got on, or had nothing to
    do; computed: when it had last taken processor time, or had nothing to do.
    """

    def __init__(self, rank: int, process: RankProcess) -> None:
        self.rank, self.process, self.connection = rank, process, Connection(process.socket)
        self.ready: tuple[Any, ...] | None = None
        self.works = self.has_complained = False
        self.progress = (0, 0)
        self.heard = self.progressed = self.computed = time.monotonic()
        self.spent = 0.0
        self._process_seconds = self._thread_seconds = 0.0

    def beat(self, works: bool, seconds: tuple[float, float], progress: tuple[int, int]) -> None:
        """Note what the worker tells of itself. seconds: of processor time: of its process, of the computing thread."""
        self.heard = time.monotonic()
        process_seconds, thread_seconds = seconds
        if progress != self.progress or not works:
            self.progress, self.progressed, self._thread_seconds = progress, self.heard, thread_seconds
        self.spent = thread_seconds - self._thread_seconds
        if self.progressed == self.heard or process_seconds > self._process_seconds + NOTHING_SECONDS:
            self.computed, self._process_seconds = self.heard, process_seconds
        self.works = works

    @property
    def exit_code(self) -> int:
        """Of the process: below 0 the signal that ended it, and large while it runs."""
        code = self.process.poll()
        return RUNNING if code is None else code
