"""LiveStreams: places for live streams, and their end when the server drains. Used by `http.realtime` and `wyoming`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from transept.serving.errors import ApiError

RETRY_SECONDS = 5.0  # after which a refused client may try again


class LiveStreams:
    """The live streams of a server. most: number of places."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._ends: set[asyncio.Event] = set()  # of the streams that are open
        self._is_draining = False

    @property
    def num(self) -> int:
        """Number of open streams."""
        return len(self._ends)

    @contextlib.contextmanager
    def place(self) -> Iterator[asyncio.Event]:
        """Hold a place while a stream is open. Yields an event that is set once the stream must end, for a shutdown.

        Raises ApiError: 429 if no place is free.
        """
        if self.num >= self.most:
            message = f"{self.num} live streams are open, as many as this server takes (--max-streams): try again in "
            message += f"{RETRY_SECONDS:.0f} s"
            raise ApiError(429, message, code="too_many_streams", retry_after=RETRY_SECONDS)
        end = asyncio.Event()
        if self._is_draining:
            end.set()
        self._ends.add(end)
        try:
            yield end
        finally:
            self._ends.discard(end)

    def drain(self) -> None:
        """Tell all streams to end: each one sends the text of its audio so far, and closes."""
        self._is_draining = True
        for end in self._ends:
            end.set()
