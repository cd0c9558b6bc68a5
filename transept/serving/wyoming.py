"""Wyoming, the protocol of Home Assistant for voice services: ``transept serve --wyoming PORT``.

A client sends ``transcribe``, ``audio-start``, ``audio-chunk``s and ``audio-stop``. Meanwhile the server sends
final text in ``transcript-chunk``s, and at the end the whole ``transcript``. The package `wyoming` has the protocol's
events. This module reads them itself, because a client may claim any length, and the package sets no limit. The
protocol has no keys and no encryption.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import numpy as np
from wyoming.asr import Transcribe, Transcript, TranscriptChunk, TranscriptStart, TranscriptStop
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.error import Error
from wyoming.event import Event, async_write_event
from wyoming.info import AsrModel, AsrProgram, Attribution, Describe, Info
from wyoming.ping import Ping, Pong

from transept import __version__
from transept.errors import MediaError, TranseptError
from transept.serving.errors import ApiError, api_error
from transept.serving.metrics import Metrics
from transept.serving.models import ServedModel, ServedModels
from transept.serving.realtime.items import Item
from transept.serving.realtime.live_job import LiveJob
from transept.serving.realtime.session_options import TranscriptionSession
from transept.serving.settings import ServerSettings
from transept.speech.live.events import Committed, Lagging, LanguageDetected, UtteranceEnded

DATA_BYTES, PAYLOAD_BYTES = 1 << 20, 4 << 20  # of an event: 2 minutes of audio at 16 kHz
WRITE_SECONDS = 60.0  # in which a client must read an event
READ_ON_SECONDS = 5.0  # after an error, until the client disconnects
HOME = "https://github.com/transept/transept"


def handler(
    settings: ServerSettings, models: ServedModels, metrics: Metrics
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """Return the function that serves a connection, for ``asyncio.start_server``."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            try:
                with models.streams.place() as end:
                    await _Connection(reader, writer, settings, models, metrics).serve(end)
            except (ApiError, TranseptError) as error:
                answer = api_error(error)
                metrics.refused(answer)
                with contextlib.suppress(OSError, TimeoutError):
                    async with asyncio.timeout(WRITE_SECONDS):
                        await async_write_event(Error(answer.message, answer.code).event(), writer)
                    await _read_on(reader, writer)
            except (OSError, TimeoutError, EOFError):
                pass  # the client has vanished, or does not read

    return connected


async def _read_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Close the writing side, then read and discard until the client closes its side.

    Closing a connection with unread bytes would reset it, and a client that still sends audio would lose the error.
    """
    if writer.can_write_eof():
        writer.write_eof()
    async with asyncio.timeout(READ_ON_SECONDS):
        while await reader.read(PAYLOAD_BYTES):
            pass


class _Connection:
    """One client. Each utterance has its own live job."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        settings: ServerSettings,
        models: ServedModels,
        metrics: Metrics,
    ) -> None:
        self.reader, self.writer, self.settings, self.models, self.metrics = reader, writer, settings, models, metrics
        self.transcribe = Transcribe()
        self.job: LiveJob | None = None
        self.rate = 0
        self.ended: asyncio.Future[Exception | None] | None = None

    async def serve(self, end: asyncio.Event) -> None:
        """Handle events until the client disconnects or is idle, or `end` is set."""
        ending = asyncio.ensure_future(end.wait())
        try:
            while True:
                reading = asyncio.ensure_future(_read_event(self.reader))
                await asyncio.wait(
                    (reading, ending),
                    timeout=self.settings.stream_idle_seconds,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if end.is_set() or not reading.done():
                    reading.cancel()
                    if end.is_set() and self.job is not None:
                        await self._finish()  # the server shuts down
                    return
                if (event := reading.result()) is None:
                    return
                await self._take(event)
        finally:
            ending.cancel()
            await self._drop()

    async def _take(self, event: Event) -> None:
        if Describe.is_type(event.type):
            await self._send(_info(self.models).event())
        elif Ping.is_type(event.type):
            await self._send(Pong(event.data.get("text")).event())
        elif Transcribe.is_type(event.type):
            with _as_api_error():
                self.transcribe = Transcribe.from_event(event)
        elif AudioStart.is_type(event.type):
            with _as_api_error():
                rate = int(event.data["rate"])
            await self._begin(rate)
        elif AudioChunk.is_type(event.type):
            with _as_api_error():
                chunk = AudioChunk.from_event(event)
            await self._push(chunk)
        elif AudioStop.is_type(event.type):
            await self._finish()

    async def _begin(self, rate: int) -> None:
        await self._drop()
        wish = self.transcribe
        transcription: dict[str, Any] = {"language": wish.language or None, "model": wish.name or None}
        if terms := [
            *(getattr(wish, "transcript_names", None) or ()),
            *(getattr(wish, "transcript_terms", None) or ()),
        ]:
            transcription["keywords"] = terms
        audio = {"format": {"type": "audio/pcm", "rate": rate}, "turn_detection": None, "transcription": transcription}
        session = TranscriptionSession.of({"audio": {"input": audio}})
        model = self.models.get(wish.name or None, "speech")
        job = self.job = LiveJob(self.models, model, session.input, 0.0)
        job.item, self.rate = Item(0.0), rate
        self.ended = asyncio.get_running_loop().create_future()

        async def on_event(live_event: Any) -> None:
            await self._on_event(job, live_event)

        async def ended(failure: Exception | None) -> None:
            assert self.ended is not None
            self.ended.set_result(failure)

        job.start(on_event, ended)
        await self._send(TranscriptStart(language=wish.language).event())

    async def _push(self, chunk: AudioChunk) -> None:
        if self.job is None:
            await self._begin(chunk.rate)
        assert self.job is not None
        if chunk.width != 2 or chunk.channels < 1 or chunk.rate != self.rate:
            message = f"audio must have 2 bytes a sample and the rate of audio-start, {self.rate} Hz"
            given = f"{chunk.width} bytes at {chunk.rate} Hz in {chunk.channels} channels"
            raise MediaError(f"{message}, not {given}. Convert it before you send it")
        samples = np.frombuffer(chunk.audio[: len(chunk.audio) // (2 * chunk.channels) * 2 * chunk.channels], "<i2")
        mono = samples.reshape(-1, chunk.channels).mean(axis=1).astype("<i2") if chunk.channels > 1 else samples
        self.metrics.audio(self.job.model.name, self.job.push(mono.tobytes()))
        await self.job.wait_for_room()

    async def _finish(self) -> None:
        job = self.job
        if job is None or self.ended is None or job.item is None:
            raise MediaError("audio-stop without audio: send audio-start and audio-chunk first")
        job.finish()
        try:
            if (failure := await self.ended) is not None:
                raise failure
        finally:
            await self._drop()
        language = job.language or self.transcribe.language
        await self._send(Transcript(job.item.text, language=language).event())
        await self._send(TranscriptStop().event())

    async def _drop(self) -> None:
        """End the job at once, if there is one, and count its passes."""
        job, self.job = self.job, None
        if job is not None:
            await job.abort()
            self.metrics.live_passes(job.model.name, job.num_passes)

    async def _on_event(self, job: LiveJob, live_event: Any) -> None:
        assert job.item is not None
        if isinstance(live_event, Committed):
            self.metrics.live_words(job.model.name, live_event.lag)
            if (delta := job.item.delta(live_event.words, (), 0.0)) is not None:
                await self._send(TranscriptChunk(delta["delta"]).event())
        elif isinstance(live_event, Lagging):
            self.metrics.live_lagging(job.model.name)
        elif isinstance(live_event, LanguageDetected):
            job.language = live_event.language
        elif isinstance(live_event, UtteranceEnded):
            job.item.begins_anew = True

    async def _send(self, event: Event) -> None:
        async with asyncio.timeout(WRITE_SECONDS):
            await async_write_event(event, self.writer)


async def _read_event(reader: asyncio.StreamReader) -> Event | None:
    """Read an event; None at the end of the stream. Raises ApiError for an invalid or too large event."""
    with _as_api_error():
        if not (line := await reader.readline()):
            return None
        head = json.loads(line)
        data = dict(head.get("data") or {})
        if length := _length(head, "data_length", DATA_BYTES):
            data |= json.loads(await reader.readexactly(length))
        length = _length(head, "payload_length", PAYLOAD_BYTES)
        return Event(str(head["type"]), data, await reader.readexactly(length) if length else None)


def _length(head: Any, name: str, most: int) -> int:
    length = int(head.get(name) or 0)
    if not 0 <= length <= most:
        raise ValueError(f"{name} must be at most {most}")
    return length


@contextlib.contextmanager
def _as_api_error() -> Iterator[None]:
    """Turn the exceptions of a malformed event into an ApiError."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        message = (
            f"this is not a Wyoming event, or it is too large: {type(error).__name__}: {error}. Send events as JSON"
        )
        raise ApiError(400, message, code="invalid_event") from None


def _info(models: ServedModels) -> Info:
    """Return the description of the server: its speech models."""
    attribution = Attribution("Transept", HOME)
    served = [_asr_model(model, attribution) for model in models.models.values() if model.speech is not None]
    program = AsrProgram(
        name="transept",
        description="Transept",
        attribution=attribution,
        installed=True,
        version=__version__,
        models=served,
        supports_transcript_streaming=True,
    )
    return Info(asr=[program])


def _asr_model(model: ServedModel, attribution: Attribution) -> AsrModel:
    assert model.speech is not None
    languages = list(model.speech.transcriber.model.languages) or ["en"]
    return AsrModel(
        name=model.name,
        description=model.name,
        attribution=attribution,
        installed=True,
        version=__version__,
        languages=languages,
    )
