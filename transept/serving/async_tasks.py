"""AsyncTranscriber, AsyncTextGenerator and AsyncVisionReader: the library's tasks for asyncio, on an AsyncEngine."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

import numpy as np

from transept.core.jobs.job import Job
from transept.errors import ParameterError
from transept.option_names import shows_options
from transept.serving.async_engine import AsyncEngine
from transept.serving.async_live import AsyncLiveStream, transcribed
from transept.serving.settings import MAX_QUEUE, MAX_RUNNING
from transept.speech.live.events import LiveEvent
from transept.speech.live.feed import Chunk
from transept.speech.live_options import NOT_OF_LIVE, LiveOptions
from transept.speech.option_checks import check_options
from transept.speech.options import TranscriptionOptions
from transept.speech.recording import AudioInput
from transept.speech.segments import Opened, Segment
from transept.speech.stream import StreamedEvents, nothing_known
from transept.speech.transcriber import LIVE_RATE, Transcriber
from transept.speech.transcript import Transcript, TranscriptionInfo
from transept.text.embedding import Embedder, TextEmbedding
from transept.text.generated_text import GeneratedText
from transept.text.generator import TextGenerator
from transept.text.job import Task
from transept.text.scoring import Scorer, TextScore
from transept.vision.image_text import ImageText
from transept.vision.reader import BLANK_PAGE, VisionReader

if TYPE_CHECKING:
    from transept.core.option_types import EngineKeywords
    from transept.speech.option_types import LiveKeywords, TranscriptionKeywords
    from transept.text.option_types import EmbeddingKeywords, ScoringKeywords, TranslationKeywords
    from transept.vision.option_types import ReadingKeywords

HEARTBEAT_SECONDS = 1  # of audio


class _AsyncTasks:
    """Base class. engine: an AsyncEngine on the engine of a loaded Transcriber, TextGenerator or VisionReader.

    lora: name of the adapter for jobs whose options name no adapter; None: the base model.
    """

    engine: AsyncEngine
    lora: str | None = None
    _loaded_by: Any

    def __init__(self, loaded: Any, *, max_running: int = MAX_RUNNING, max_queue: int = MAX_QUEUE) -> None:
        raise NotImplementedError

    @classmethod
    async def load(
        cls,
        model: str | Path,
        *,
        max_running: int = MAX_RUNNING,
        max_queue: int = MAX_QUEUE,
        **engine_options: Unpack[EngineKeywords],
    ) -> Self:
        """Load a model in another thread. Raises as the class without Async."""
        loaded = await asyncio.to_thread(partial(cls._loaded_by, model, **engine_options))
        return cls(loaded, max_running=max_running, max_queue=max_queue)

    def with_adapter(self, name: str) -> Self:
        """Return the same tasks, by default with an adapter. Raises ParameterError for an unknown one."""
        adapted = copy.copy(self)
        adapted.lora = self.engine.engine.adapters.lasting(name)
        return adapted

    def adapted(self, options: Any) -> Any:
        """Return a job's options, with `lora` if they name no adapter."""
        return options if self.lora is None or options.get("lora") is not None else {**options, "lora": self.lora}

    async def close(self) -> None:
        """Abort all jobs and free the model's memory."""
        await self.engine.close()


class AsyncTranscriber(_AsyncTasks):
    """A Transcriber for the tasks of one event loop. ``await AsyncTranscriber.load(model)`` makes one.

    transcriber: a loaded Transcriber. max_running, max_queue: see
    AsyncEngine, which is `engine`.
    """

    _loaded_by = Transcriber

    def __init__(self, transcriber: Transcriber, *, max_running: int = MAX_RUNNING, max_queue: int = MAX_QUEUE) -> None:
        self.transcriber = transcriber
        self.engine = AsyncEngine(
            transcriber.engine,
            max_running=max_running,
            max_queue=max_queue,
            heartbeat=self._heartbeat,
            preliminary=(Opened, TranscriptionInfo),
        )

    @shows_options(TranscriptionOptions)
    def job(self, audio: AudioInput, **options: Unpack[TranscriptionKeywords]) -> Job:
        """Return a job for `engine`. Its events are Opened, TranscriptionInfo and Found, its result a Transcript.

        Raises ParameterError at once for a bad option.
        """
        return self.transcriber.job(audio, **self.adapted(options))

    @shows_options(TranscriptionOptions)
    async def transcribe(self, audio: AudioInput, **options: Unpack[TranscriptionKeywords]) -> Transcript:
        """Transcribe one recording. Raises as Transcriber.transcribe, and QueueFullError or EngineClosedError."""
        return await last(self.engine.run(self.job(audio, **options)))

    @shows_options(TranscriptionOptions)
    def stream(self, audio: AudioInput, **options: Unpack[TranscriptionKeywords]) -> AsyncSegmentStream:
        """Return the segments of one recording, each once it is final. Closing the stream aborts the transcription.

        ``await stream.info()`` returns the TranscriptionInfo before the first segment.
        """
        return AsyncSegmentStream(self.engine.run(self.job(audio, **options)))

    @shows_options(TranscriptionOptions, LiveOptions, without=NOT_OF_LIVE)
    def live(
        self,
        chunks: AsyncIterable[Chunk] | Iterable[Chunk],
        rate: float = LIVE_RATE,
        **options: Unpack[LiveKeywords],
    ) -> AsyncGenerator[LiveEvent, None]:
        """Transcribe speech while it is spoken; see Transcriber.live. A plain iterable is read in another thread."""
        return transcribed(self.live_stream(rate, **options), chunks)

    @shows_options(TranscriptionOptions, LiveOptions, without=NOT_OF_LIVE)
    def live_stream(self, rate: float = LIVE_RATE, **options: Unpack[LiveKeywords]) -> AsyncLiveStream:
        """Return a live stream, to which audio is pushed, and whose events a task reads. rate: of the audio, in Hz.

        Raises ParameterError for a bad option.
        """
        return AsyncLiveStream(self.transcriber.live_transcription(rate, **self.adapted(options)), self.engine)

    def _heartbeat(self) -> Job:
        """A job on a second of noise, in sequential mode, because the other modes decode only speech."""
        rate = self.transcriber.model.spec.sample_rate
        noise = np.random.default_rng(0).normal(0, 0.01, HEARTBEAT_SECONDS * rate).astype(np.float32)
        options = self._languages()
        options.update({"temperature": 0.0, "max_new_tokens": 1, "mode": "sequential"})
        return self.job((noise, rate), **options)

    @cached_property
    def transcribes(self) -> bool:
        """True if the model can transcribe in the spoken language; a few models only translate."""
        return self._languages()["target_language"] is None

    def _languages(self) -> TranscriptionKeywords:
        """Options for some language, and some target language if the model needs one."""
        model = self.transcriber.model
        language, target = next(iter(model.languages), None), None
        for target in (None, *model.target_languages):
            with contextlib.suppress(ParameterError):
                check_options(model, model.options({"language": language, "target_language": target}))
                break
        return {"language": language, "target_language": target}


class AsyncSegmentStream(AsyncIterator[Segment]):
    """An asynchronous iterator over the segments of one recording. Closing it aborts the transcription.

    The transcription starts when the first segment, or `info`, is requested. Only one task at a time may use a stream.
    """

    def __init__(self, events: AsyncGenerator[Any, None]) -> None:
        self._events = events
        self._had = StreamedEvents()

    async def info(self) -> TranscriptionInfo:
        """Wait for and return the language, the duration and other properties known before the first segment.

        Raises as Transcriber.transcribe, and TranseptError if the stream was closed before.
        """
        while self._had.info is None:
            try:
                self._had.take(await anext(self._events))
            except StopAsyncIteration:
                raise nothing_known() from None
        return self._had.info

    async def __anext__(self) -> Segment:
        while not self._had.segments:
            self._had.take(await anext(self._events))  # raises StopAsyncIteration at the end
        return self._had.segments.popleft()

    async def aclose(self) -> None:
        """Abort the transcription. Yields no further segment."""
        self._had.segments.clear()
        await self._events.aclose()


class AsyncTextGenerator(_AsyncTasks):
    """A TextGenerator for the tasks of one event loop. ``await AsyncTextGenerator.load(model)`` makes one.

    generator: a loaded TextGenerator. max_running, max_queue: see
    AsyncEngine, which is `engine`.
    """

    _loaded_by = TextGenerator

    def __init__(self, generator: TextGenerator, *, max_running: int = MAX_RUNNING, max_queue: int = MAX_QUEUE) -> None:
        self.generator = generator
        self.engine = AsyncEngine(generator.engine, max_running=max_running, max_queue=max_queue)

    @property
    def tasks(self) -> list[Task]:
        """The checkpoint's tasks; see TextGenerator.tasks. Some of them need languages."""
        return self.generator.tasks

    def job(self, task: Task, document: str, *, stream: bool = False, **options: Unpack[TranslationKeywords]) -> Job:
        """Return a job for `engine`, whose result is a GeneratedText. stream: yield pieces of the text as events.

        task, options: see TextGenerator. Raises ParameterError at once for a bad one.
        """
        return self.generator.job(task, document, stream=stream, **self.adapted(options))

    async def run(self, task: Task, document: str, **options: Unpack[TranslationKeywords]) -> GeneratedText:
        """Generate a text for one document. Raises as TextGenerator, and QueueFullError or EngineClosedError."""
        return await last(self.engine.run(self.job(task, document, **options)))

    async def score(self, document: str, text: str, **options: Unpack[ScoringKeywords]) -> TextScore:
        """Return how likely the model finds a text for one document. options, errors: see TextGenerator.score.

        Also raises QueueFullError.
        """
        scorer = Scorer(self.generator.engine, self.adapted(options))
        return cast("TextScore", await last(self.engine.run(scorer.score_for(document, text))))

    async def encode(self, document: str, **options: Unpack[EmbeddingKeywords]) -> TextEmbedding:
        """Return one document's embedding. options, errors: see TextGenerator.encode. Also raises QueueFullError."""
        embedder = Embedder(self.generator.engine, self.adapted(options))
        return cast("TextEmbedding", await last(self.engine.run(embedder.embed_for(document))))

    async def stream(
        self, task: Task, document: str, **options: Unpack[TranslationKeywords]
    ) -> AsyncGenerator[str, None]:
        """Like `run`, but yield pieces of the text as they become final; joined, they are the whole text."""
        told = 0
        async with contextlib.aclosing(self.engine.run(self.job(task, document, stream=True, **options))) as events:
            async for event in events:
                piece = event.text[told:] if isinstance(event, GeneratedText) else event
                if isinstance(piece, str) and piece:
                    told += len(piece)
                    yield piece


class AsyncVisionReader(_AsyncTasks):
    """A VisionReader for the tasks of one event loop. ``await AsyncVisionReader.load(model)`` makes one.

    reader: a loaded VisionReader. max_running, max_queue: see
    AsyncEngine, which is `engine`.
    """

    _loaded_by = VisionReader

    def __init__(self, reader: VisionReader, *, max_running: int = MAX_RUNNING, max_queue: int = MAX_QUEUE) -> None:
        self.reader = reader
        self.engine = AsyncEngine(
            reader.engine, max_running=max_running, max_queue=max_queue, heartbeat=self._heartbeat
        )

    def job(self, image: Any, **options: Unpack[ReadingKeywords]) -> Job:
        """Return a job for `engine`, whose result is an ImageText. Raises ParameterError at once for a bad option."""
        return self.reader.job(image, **self.adapted(options))

    async def read(self, image: Any, **options: Unpack[ReadingKeywords]) -> ImageText:
        """Read one image. Raises as VisionReader.read, and QueueFullError or EngineClosedError."""
        return await last(self.engine.run(self.job(image, **options)))

    def _heartbeat(self) -> Job:
        """A job for one token of an empty page."""
        return self.job(BLANK_PAGE, num_beams=1, max_tokens=1)


async def last(events: AsyncGenerator[Any, None]) -> Any:
    """Return the last event."""
    newest = None
    async with contextlib.aclosing(events):
        async for event in events:
            newest = event
    return newest
