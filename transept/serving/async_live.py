"""AsyncLiveStream: a live transcription for the tasks of an event loop. `AsyncTranscriber.live_stream` makes one."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable
from functools import partial
from typing import Any, Self

from transept.serving.async_engine import AsyncEngine
from transept.speech.live.events import LiveEvent
from transept.speech.live.feed import Chunk, check_chunks
from transept.speech.live.transcription import LiveTranscription


class AsyncLiveStream(AsyncIterator[LiveEvent]):
    """An asynchronous iterator over the events of a stream, which waits for audio.

    The stream takes a place of the engine, like every job, once the first event is requested. One task at a time reads
    the events. Leaving the ``async with`` block cancels the remaining work.
    """

    def __init__(self, transcription: LiveTranscription, engine: AsyncEngine) -> None:
        self.transcription, self.feed = transcription, transcription.feed
        self._events: AsyncGenerator[Any, None] = engine.run(transcription.job())

    def push(self, chunk: Chunk) -> None:
        """Add audio, from any thread: bytes of PCM in 16 bits, or an array of samples. Never waits.

        Raises MediaError for anything else, and TranseptError after `close`.
        """
        self.feed.push(chunk)

    def close(self) -> None:
        """End the audio. The events end once all of it is transcribed."""
        self.feed.close()

    async def aclose(self) -> None:
        """End the stream at once, and remove its requests from the engine."""
        self.feed.close()
        await self._events.aclose()

    async def __anext__(self) -> LiveEvent:
        """Wait for and return the next event. Raises the error that ended the stream, as `AsyncEngine.run`.

        A stream that has ended takes no more audio.
        """
        event: LiveEvent | None = None
        try:
            event = await anext(self._events)
        finally:
            if event is None:
                self.feed.close()
        if event is None:  # the job's result
            await self._events.aclose()
            raise StopAsyncIteration
        return event

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def transcribed(
    stream: AsyncLiveStream, chunks: AsyncIterable[Chunk] | Iterable[Chunk]
) -> AsyncGenerator[LiveEvent, None]:
    """Push all chunks from another task, or another thread for a plain iterable, and yield the events.

    Raises the error of the iterable at the end, and ParameterError at once for what yields no chunks.
    """
    check_chunks(chunks, AsyncIterable | Iterable)
    return _transcribed(stream, chunks)


async def _transcribed(
    stream: AsyncLiveStream, chunks: AsyncIterable[Chunk] | Iterable[Chunk]
) -> AsyncGenerator[LiveEvent, None]:

    async def push_asynchronous(source: AsyncIterable[Chunk]) -> None:
        try:
            async for chunk in source:
                if not stream.feed.has_room:
                    await _in_thread(stream.feed.wait_for_room)
                if stream.feed.is_closed:
                    return
                stream.push(chunk)
        finally:
            stream.close()

    pushing: asyncio.Future[Any]
    async with stream:
        if isinstance(chunks, AsyncIterable):
            pushing = asyncio.ensure_future(push_asynchronous(chunks))
        else:
            pushing = _in_thread(partial(stream.feed.push_all, chunks))
        try:
            async for event in stream:
                yield event
            await pushing
        finally:
            if isinstance(chunks, AsyncIterable):
                pushing.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await pushing


def _in_thread(function: Callable[[], None]) -> asyncio.Future[Any]:
    """Call a function that may wait forever, such as for a microphone, in a daemon thread.

    A thread of the event loop's executor would keep the loop, and then the process, from ending.
    """
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def settle(failure: BaseException | None) -> None:
        if done.done():
            return  # cancelled
        if failure is None:
            done.set_result(None)
        else:
            done.set_exception(failure)

    def call() -> None:
        failure: BaseException | None = None
        try:
            function()
        except BaseException as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop is closed, so no task waits
            loop.call_soon_threadsafe(settle, failure)

    threading.Thread(target=call, name="transept-live", daemon=True).start()
    return done
