"""SegmentStream: the segments of one recording as they become certain, and what is known before the first of them.

`Transcriber.stream` returns one; the events are those of the recording's job (`transept.speech.recording`). Streams for
asyncio (`transept.serving.async_stream`) sort the same events with `StreamedEvents`.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Generator, Iterator
from itertools import count
from typing import Any

from transept.errors import TranseptError
from transept.lifetime import Closable
from transept.speech.events import Found
from transept.speech.segments import Segment
from transept.speech.transcript import TranscriptionInfo


class StreamedEvents:
    """What the events of a job have brought: info, and the segments that nobody has had yet, numbered from 0."""

    def __init__(self) -> None:
        self.info: TranscriptionInfo | None = None
        self.segments: deque[Segment] = deque()
        self._numbers = count()  # windows of batched mode do not know how many segments came before

    def take(self, event: Any) -> None:
        """Take in the next event."""
        if isinstance(event, TranscriptionInfo):
            self.info = event
        elif isinstance(event, Found):
            self.segments += (dataclasses.replace(each, id=next(self._numbers)) for each in event.segments)


def nothing_known() -> TranseptError:
    """The error of a stream that was closed too early to be asked for its info."""
    return TranseptError("the stream was closed before its info was known; ask for that first")


class SegmentStream(Closable, Iterator[Segment]):
    """An iterator over segments. Nothing is done before the first of them, or `info`, is asked for.

    Closing it, as a ``with`` block does at its end, leaves the rest undone. It belongs to one thread at a time.
    """

    def __init__(self, events: Generator[tuple[int, Any], None, None]) -> None:
        self._events = events
        self._had = StreamedEvents()
        self._failure: TranseptError | None = None

    @property
    def info(self) -> TranscriptionInfo:
        """The language, the duration and what else is known before the first segment: waits until it is.

        Raises MediaError for audio that cannot be read, and TranseptError for a stream that was closed too early.
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
        """Leave the rest undone; nothing of it stays in the engine. No segment comes after it."""
        self._had.segments.clear()
        self._events.close()

    def _advance(self) -> bool:
        """Take in the next event. Returns whether there was one; raises the error that a recording ended with."""
        event = next(self._events, (0, None))[1]
        if isinstance(event, TranseptError):
            self._failure = event
            raise event
        self._had.take(event)
        return event is not None
