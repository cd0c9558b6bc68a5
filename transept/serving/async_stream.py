"""AsyncSegmentStream: `transept.speech.stream`'s SegmentStream for asyncio. `AsyncTranscriber.stream` returns one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from transept.speech.segments import Segment
from transept.speech.stream import StreamedEvents, nothing_known
from transept.speech.transcript import TranscriptionInfo


class AsyncSegmentStream(AsyncIterator[Segment]):
    """An asynchronous iterator over the segments of one recording. Leaving it, or closing it, aborts the work.

    Nothing is done before the first segment, or `info`, is asked for. It belongs to one task at a time.
    """

    def __init__(self, events: AsyncGenerator[Any, None]) -> None:
        self._events = events
        self._had = StreamedEvents()

    async def info(self) -> TranscriptionInfo:
        """The language, the duration and what else is known before the first segment: waits until it is.

        Raises what Transcriber.transcribe raises, and TranseptError for a stream that was closed too early.
        """
        while self._had.info is None:
            try:
                self._had.take(await anext(self._events))
            except StopAsyncIteration:
                raise nothing_known() from None
        return self._had.info

    async def __anext__(self) -> Segment:
        while not self._had.segments:
            self._had.take(await anext(self._events))  # its end is this one's
        return self._had.segments.popleft()

    async def aclose(self) -> None:
        """Abort the work. No segment comes after it."""
        self._had.segments.clear()
        await self._events.aclose()
