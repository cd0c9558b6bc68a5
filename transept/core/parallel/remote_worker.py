"""RemoteWorker: a rank's process as the engine's process sees it. Made and watched by `multi_process`."""

from __future__ import annotations

import time

from transept.core.parallel.connection import Connection
from transept.core.parallel.launcher import RankProcess

NOTHING_SECONDS = 0.1  # of processor time; the heartbeat thread alone takes minutes to use so much
RUNNING = 1 << 10  # larger than any exit code
SILENCE_SECONDS = 6.0  # a worker sends a heartbeat every half a second
GPU_SILENCE_SECONDS = 60.0  # while the first steps compile kernels, no other thread may run
STARTUP_SILENCE_SECONDS = 120.0  # while it imports and reads weights
CLOCK_SECONDS = 60.0  # wall-clock time without progress: default worker_timeout on GPUs, minimum on CPUs
STILL_SECONDS = 7.0  # a worker on a CPU hangs if it has work, but takes no processor time for so long


class RemoteWorker:
    """A rank's process, its connection, and its last heartbeat.

    ready: its Capacity's num_device_blocks, num_host_blocks and num_encoder_layers; None until it has loaded the model.
    works: True if it has a step to compute and does not wait for another rank. has_complained: True if it reported why
    it stops. spent: seconds of processor time of its computing thread since its last progress.

    Times of time.monotonic: last_heartbeat; progressed: when it last made progress or was idle; computed: when it last
    took processor time or was idle.
    """

    def __init__(self, rank: int, process: RankProcess) -> None:
        self.rank, self.process, self.connection = rank, process, Connection(process.socket)
        self.ready: list[int] | None = None
        self.works = self.has_complained = False
        self.spent = 0.0
        self._progress = (0, 0)
        self._process_seconds = self._thread_seconds = 0.0
        self.excuse(time.monotonic())

    def excuse(self, now: float) -> None:
        """Restart all timeouts."""
        self.last_heartbeat = self.progressed = self.computed = now

    def note_heartbeat(self, works: bool, seconds: tuple[float, float], progress: tuple[int, int]) -> None:
        """Record a heartbeat.

        seconds: processor time of its process, and of its computing thread. progress: number of exchanges and layers
        that it has begun, and number of steps that it has computed.
        """
        self.last_heartbeat = time.monotonic()
        process_seconds, thread_seconds = seconds
        if progress != self._progress or not works:
            self._progress, self.progressed, self._thread_seconds = progress, self.last_heartbeat, thread_seconds
        self.spent = thread_seconds - self._thread_seconds
        if self.progressed == self.last_heartbeat or process_seconds > self._process_seconds + NOTHING_SECONDS:
            self.computed, self._process_seconds = self.last_heartbeat, process_seconds
        self.works = works

    def complaint(self, now: float, on_cpu: bool, timeout: float) -> str | None:
        """Return why the worker is considered to hang; None if it is not. timeout: worker_timeout, see EngineConfig."""
        silence = SILENCE_SECONDS if on_cpu else GPU_SILENCE_SECONDS
        if self.ready is None:
            silence = STARTUP_SILENCE_SECONDS
        if now - self.last_heartbeat > silence:
            return f"has sent no heartbeat for {silence:g} s"
        if self.ready is None or not self.works:
            return None
        if on_cpu and now - self.computed > STILL_SECONDS:
            return f"has a step to compute, and has not computed for {STILL_SECONDS:g} s"
        spent = self.spent if on_cpu else now - self.progressed
        if spent > timeout or now - self.progressed > max(timeout, CLOCK_SECONDS):
            return f"has computed for {timeout:g} s (worker_timeout) without progress"
        return None

    @property
    def exit_code(self) -> int:
        """The process's exit code, below 0 for the signal that ended it; RUNNING, which is large, while it runs."""
        code = self.process.poll()
        return RUNNING if code is None else code
