"""AudioMemory: a budget for the decoded audio of all requests of a server.

A recording that declares its length waits in its decoding thread, in order of arrival, until its samples fit. If it
declares none, or one that is too short, it reserves memory during decoding and is refused once the budget is spent.
`ServedModels` holds the budget, and `http.transcriptions` holds a share for each request.
"""

from __future__ import annotations

import threading
import time
from collections import deque

from transept.errors import QueueFullError

MAY_WAIT = hasattr(time, "pthread_getcpuclockid")  # else `transept.core.jobs.offload` cannot tell if a thread waits
TAKEN = "other recordings hold the memory for decoded audio: try again later"


class AudioMemory:
    """Bytes of samples that all recordings together may hold. A recording larger than the whole budget runs alone.

    Thread-safe. most: the budget in bytes.
    """

    def __init__(self, most: int) -> None:
        self.most, self.held = most, 0
        self.changed = threading.Condition()
        self.waiting: deque[AudioShare] = deque()

    def share(self) -> AudioShare:
        """Return a new share, which holds nothing. The caller releases it."""
        return AudioShare(self)

    def fits(self, share: AudioShare, num_bytes: int) -> bool:
        """Return True if a share may hold so many bytes. Called under the lock."""
        others = self.held - share.held
        return not others or others + num_bytes <= self.most


class AudioShare:
    """The part of an AudioMemory that one recording holds; a `transept.multimodal.audio_limits.Reservation`."""

    def __init__(self, memory: AudioMemory) -> None:
        self.held = 0
        self._memory = memory
        self._decoded = 0  # bytes so far
        self._is_released = False

    def expect(self, num_bytes: int) -> None:
        """Wait until so many bytes fit, after the shares that waited before. Raises QueueFullError once released.

        Without MAY_WAIT, raises QueueFullError instead of waiting, since a waiting thread would count as computing.
        """
        memory = self._memory
        with memory.changed:
            if not MAY_WAIT and not memory.fits(self, num_bytes):
                raise QueueFullError(TAKEN)
            memory.waiting.append(self)
            while not self._is_released and not (memory.waiting[0] is self and memory.fits(self, num_bytes)):
                memory.changed.wait()
            memory.waiting.remove(self)
            if not self._is_released:
                self._set(max(self.held, num_bytes))
            memory.changed.notify_all()  # the next one may fit beside it
        self._check()

    def hold(self, num_bytes: int) -> None:
        """Grow to so many bytes. Raises QueueFullError if they do not fit, or if the share is released."""
        self._decoded = num_bytes
        if num_bytes > self.held or self._is_released:
            with self._memory.changed:
                self._check()
                if not self._memory.fits(self, num_bytes):
                    raise QueueFullError(TAKEN)
                self._set(num_bytes)

    def settle(self) -> None:
        """Return the bytes that were reserved but not used. Called once the recording is decoded."""
        with self._memory.changed:
            if not self._is_released:
                self._set(self._decoded)
                self._memory.changed.notify_all()

    def release(self) -> None:
        """Return all bytes. A thread that still waits for the share, or still decodes, gets an error."""
        with self._memory.changed:
            self._is_released = True
            self._set(0)
            self._memory.changed.notify_all()

    def _set(self, num_bytes: int) -> None:
        self._memory.held += num_bytes - self.held
        self.held = num_bytes

    def _check(self) -> None:
        if self._is_released:
            raise QueueFullError("the request ended before its recording was decoded")
