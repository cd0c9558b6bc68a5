"""LiveStream: one live transcription. Any thread may push audio, while one thread reads the events.

`Transcriber.live_stream` makes one. Reading its events drives the engine, as for every job.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Iterator
from types import TracebackType
from typing import Any

from transept.core.jobs.runner import JobRunner
from transept.errors import TranseptError
from transept.speech.live.events import LiveEvent
from transept.speech.live.feed import Chunk, check_chunks
from transept.speech.live.transcription import LiveTranscription


class LiveStream(Iterator[LiveEvent]):
    """An iterator over the events of a stream, which waits for audio.

    `push` and `close` may be called from any thread; one thread at a time reads the events. Leaving the ``with`` block
    cancels the remaining work.
    """

    def __init__(self, transcription: LiveTranscription, runner: JobRunner) -> None:
        self.feed = transcription.feed
        self._events: Generator[tuple[int, Any], None, None] = runner.run([transcription.job()], 1)
        self._reading = threading.Lock()  # held by the thread that waits for an event

    def push(self, chunk: Chunk) -> None:
        """Add audio: bytes of PCM in 16 bits, or an array of floats or integers, mono or [channels, samples].

        Never waits. Raises MediaError for anything else, and TranseptError after `close`.
        """
        self.feed.push(chunk)

    def close(self) -> None:
        """End the audio. The events end once all of it is transcribed."""
        self.feed.close()

    def cancel(self) -> None:
        """End the stream at once, and remove its requests from the engine. Only for the thread that reads events."""
        self.feed.close()
        self._events.close()

    def __next__(self) -> LiveEvent:
        """Wait for and return the next event. Raises the error that ended the stream; then it takes no more audio."""
        if not self._reading.acquire(blocking=False):
            raise TranseptError("another thread reads the events of this live stream; one thread at a time may")
        event: LiveEvent | TranseptError | None = None
        try:
            event = next(self._events)[1]
        finally:
            self._reading.release()
            if event is None or isinstance(event, TranseptError):
                self.feed.close()
        if isinstance(event, TranseptError):
            raise event
        if event is None:  # the job's result
            self._events.close()
            raise StopIteration
        return event

    def __enter__(self) -> LiveStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.cancel()


def transcribed(stream: LiveStream, chunks: Iterable[Chunk]) -> Generator[LiveEvent, None, None]:
    """Push all chunks from another thread, and yield the events. Raises the error of the iterable at the end.

    Raises ParameterError at once if `chunks` does not yield audio.
    """
    check_chunks(chunks)
    return _transcribed(stream, chunks)


def _transcribed(stream: LiveStream, chunks: Iterable[Chunk]) -> Generator[LiveEvent, None, None]:
    failures: list[BaseException] = []

    def push() -> None:
        try:
            stream.feed.push_all(chunks)
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=push, name="transept-live", daemon=True)  # it may wait for audio forever
    with stream:
        thread.start()
        yield from stream
    if failures:
        raise failures[0]
