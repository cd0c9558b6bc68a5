"""SegmentStream: the segments of one recording, each once it is certain, and its info.

`Transcriber.stream` returns one, over the events of the recording's job (`transept.speech.recording`). Streams for
asyncio (`transept.serving.async_tasks`) sort the same events with `StreamedEvents`.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Generator, Iterator
from itertools import count
from typing import Any

from transept.errors import TranseptError
from transept.lifetime import Closable
from transept.speech.segments import Found, Segment
from transept.speech.transcript import TranscriptionInfo


class StreamedEvents:
    """The info from the events of a job, and the segments that have not been read yet, numbered from 0."""

    def __init__(self) -> None:
        self.info: TranscriptionInfo | None = None
        self.segments: deque[Segment] = deque()
        self._numbers = count()  # windows of batched mode cannot number their segments

    def take(self, event: Any) -> None:
        """Add the next event."""
        if isinstance(event, TranscriptionInfo):
            self.info = event
        elif isinstance(event, Found):
            self.segments += (dataclasses.replace(each, id=next(self._numbers)) for each in event.segments)


def nothing_known() -> TranseptError:
    """Return the error of a stream that was closed before its info was known."""
    return TranseptError("the stream was closed before its info was known; read info first")


class SegmentStream(Closable, Iterator[Segment]):
    """An iterator over segments. Work starts when the first segment, or `info`, is read.

    Closing it, for example by leaving its ``with`` block, cancels the rest. Only one thread at a time may use it.
    """

    def __init__(self, events: Generator[tuple[int, Any], None, None]) -> None:
        self._events = events
        self._had = StreamedEvents()
        self._failure: TranseptError | None = None

    @property
    def info(self) -> TranscriptionInfo:
        """The language, the duration and the other fields known before the first segment. Waits for them.

        Raises MediaError for audio that cannot be read, and TranseptError if the stream was closed before.
        """
        while self._had.info is None:
            if not self._advance():
                raise self._failure or nothing_known()
        return self._had.info

    def __next__(self) -> Segment:
        while not self._had.segments:
            if not self._advance():
                raise StopIteration
        return self._had.segments.popleft()

    def close(self) -> None:
        """Cancel the rest, and remove it from the engine. The iterator ends."""
        self._had.segments.clear()
        self._events.close()

    def _advance(self) -> bool:
        """Read the next event. Returns False after the last one. Raises the error that ended the recording."""
        event = next(self._events, (0, None))[1]
        if isinstance(event, TranseptError):
            self._failure = event
            raise event
        self._had.take(event)
        return event is not None
