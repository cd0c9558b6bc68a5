"""AsyncTranscriber, AsyncTextGenerator, AsyncVisionReader: the library's tasks for asyncio, each on its AsyncEngine."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from transept.core.jobs.job import Job
from transept.errors import ParameterError
from transept.option_names import shows_options
from transept.serving.async_engine import AsyncEngine
from transept.serving.async_stream import AsyncSegmentStream
from transept.serving.settings import MAX_QUEUE, MAX_RUNNING
from transept.speech.options import TranscriptionOptions
from transept.speech.recording import AudioInput
from transept.speech.segments import Opened
from transept.speech.transcriber import Transcriber
from transept.speech.transcript import Transcript, TranscriptionInfo
from transept.text.generated_text import GeneratedText
from transept.text.generator import TextGenerator
from transept.text.job import Task
from transept.vision.image_text import ImageText
from transept.vision.reader import BLANK_PAGE, VisionReader

if TYPE_CHECKING:
    from transept.core.option_types import EngineKeywords
    from transept.speech.option_types import TranscriptionKeywords
    from transept.text.option_types import TranslationKeywords
    from transept.vision.option_types import ReadingKeywords

HEARTBEAT_SECONDS = 1  # of sound


class AsyncTranscriber:
    """A Transcriber for the tasks of one event loop.

    transcriber: see Transcriber; ``await AsyncTranscriber.load(model)`` makes one. max_running, max_queue: see
    AsyncEngine, which is `engine`.
    """

    def __init__(self, transcriber: Transcriber, *, max_running: int = MAX_RUNNING, max_queue: int = MAX_QUEUE) -> None:
        self.transcriber = transcriber
        self.engine = AsyncEngine(
            transcriber.engine,
            max_running=max_running,
            max_queue=max_queue,
            heartbeat=self._heartbeat,
            preliminary=(Opened, TranscriptionInfo),
        )

    @classmethod
    async def load(
        cls,
        model: str | Path,
        *,
        max_running: int = MAX_RUNNING,
        max_queue: int = MAX_QUEUE,
        **engine_options: Unpack[EngineKeywords],
    ) -> AsyncTranscriber:
        """Load a model beside the event loop. Raises what Transcriber raises."""
        transcriber = await asyncio.to_thread(partial(Transcriber, model, **engine_options))
        return cls(transcriber, max_running=max_running, max_queue=max_queue)

    @shows_options(TranscriptionOptions)
    def job(self, audio: AudioInput, **options: Unpack[TranscriptionKeywords]) -> Job:
        """A job for `engine`: its events are Opened, TranscriptionInfo and Found, its result a Transcript.

        Raises ParameterError at once for a bad option.
        """
        return self.transcriber.job(audio, **options)

    @shows_options(TranscriptionOptions)
    async def transcribe(self, audio: AudioInput, **options: Unpack[TranscriptionKeywords]) -> Transcript:
        """Transcribe one recording. Raises what Transcriber.transcribe raises; QueueFullError, EngineClosedError."""
        return await last(self.engine.run(self.job(audio, **options)))

    @shows_options(TranscriptionOptions)
    def stream(self, audio: AudioInput, **options: Unpack[TranscriptionKeywords]) -> AsyncSegmentStream:
        """The segments of one recording, each as soon as it is certain. Leaving it early aborts the work.

        ``await stream.info()`` is what is known before the first of them.
        """
        return AsyncSegmentStream(self.engine.run(self.job(audio, **options)))

    async def close(self) -> None:
        """Abort what is under way and give back the model's memory."""
        await self.engine.close()

    def _heartbeat(self) -> Job:
        """A little noise, in sequential mode, because other modes decode speech alone."""
        rate = self.transcriber.model.spec.sample_rate
        noise = np.random.default_rng(0).normal(0, 0.01, HEARTBEAT_SECONDS * rate).astype(np.float32)
        options = self._languages()
        options.update({"temperature": 0.0, "max_new_tokens": 1, "mode": "sequential"})
        return self.job((noise, rate), **options)

    @cached_property
    def transcribes(self) -> bool:
        """Whether it writes the language that is spoken, where that is said; a few models do nothing but translate."""
        return self._languages()["target_language"] is None

    def _languages(self) -> TranscriptionKeywords:
        """Some language, and some target language if the model needs one."""
        model = self.transcriber.model
        language, target = next(iter(model.languages), None), None
        for target in (None, *model.target_languages):
            with contextlib.suppress(ParameterError):
                model.check(model.options({"language": language, "target_language": target}))
                break
        return {"language": language, "target_language": target}


class AsyncTextGenerator:
    """A TextGenerator for the tasks of one event loop.

    generator: see TextGenerator; ``await AsyncTextGenerator.load(model)`` makes one. max_running, max_queue: see
    AsyncEngine, which is `engine`.
    """

    def __init__(self, generator: TextGenerator, *, max_running: int = MAX_RUNNING, max_queue: int = MAX_QUEUE) -> None:
        self.generator = generator
        self.engine = AsyncEngine(generator.engine, max_running=max_running, max_queue=max_queue)

    @classmethod
    async def load(
        cls,
        model: str | Path,
        *,
        max_running: int = MAX_RUNNING,
        max_queue: int = MAX_QUEUE,
        **engine_options: Unpack[EngineKeywords],
    ) -> AsyncTextGenerator:
        """Load a model beside the event loop. Raises what TextGenerator raises."""
        generator = await asyncio.to_thread(partial(TextGenerator, model, **engine_options))
        return cls(generator, max_running=max_running, max_queue=max_queue)

    @property
    def tasks(self) -> list[Task]:
        """The tasks that the checkpoint can do: see TextGenerator.tasks. Some of them need languages."""
        return self.generator.tasks

    def job(self, task: Task, document: str, *, stream: bool = False, **options: Unpack[TranslationKeywords]) -> Job:
        """A job for `engine`: its events, with stream, are pieces of text, its result a GeneratedText.

        task, options: see TextGenerator. Raises ParameterError at once for a bad one.
        """
        return self.generator.job(task, document, stream=stream, **options)

    async def run(self, task: Task, document: str, **options: Unpack[TranslationKeywords]) -> GeneratedText:
        """What the model writes for one document. Raises as TextGenerator; QueueFullError, EngineClosedError."""
        return await last(self.engine.run(self.job(task, document, **options)))

    async def stream(
        self, task: Task, document: str, **options: Unpack[TranslationKeywords]
    ) -> AsyncGenerator[str, None]:
        """The same, piece by piece as it becomes final; the pieces join to the whole text."""
        told = 0
        async with contextlib.aclosing(self.engine.run(self.job(task, document, stream=True, **options))) as events:
            async for event in events:
                piece = event.text[told:] if isinstance(event, GeneratedText) else event
                if isinstance(piece, str) and piece:
                    told += len(piece)
                    yield piece

    async def close(self) -> None:
        """Abort what is under way and give back the model's memory."""
        await self.engine.close()


class AsyncVisionReader:
    """A VisionReader for the tasks of one event loop.

    reader: see VisionReader; ``await AsyncVisionReader.load(model)`` makes one. max_running, max_queue: see
    AsyncEngine, which is `engine`.
    """

    def __init__(self, reader: VisionReader, *, max_running: int = MAX_RUNNING, max_queue: int = MAX_QUEUE) -> None:
        self.reader = reader
        self.engine = AsyncEngine(
            reader.engine, max_running=max_running, max_queue=max_queue, heartbeat=self._heartbeat
        )

    @classmethod
    async def load(
        cls,
        model: str | Path,
        *,
        max_running: int = MAX_RUNNING,
        max_queue: int = MAX_QUEUE,
        **engine_options: Unpack[EngineKeywords],
    ) -> AsyncVisionReader:
        """Load a model beside the event loop. Raises what VisionReader raises."""
        reader = await asyncio.to_thread(partial(VisionReader, model, **engine_options))
        return cls(reader, max_running=max_running, max_queue=max_queue)

    def job(self, image: Any, **options: Unpack[ReadingKeywords]) -> Job:
        """A job for `engine`, whose result is an ImageText. Raises ParameterError at once for a bad option."""
        return self.reader.job(image, **options)

    async def read(self, image: Any, **options: Unpack[ReadingKeywords]) -> ImageText:
        """Read one image. Raises what VisionReader.read raises; QueueFullError, EngineClosedError."""
        return await last(self.engine.run(self.job(image, **options)))

    async def close(self) -> None:
        """Abort what is under way and give back the model's memory."""
        await self.engine.close()

    def _heartbeat(self) -> Job:
        """An empty page, and one token."""
        return self.job(BLANK_PAGE, num_beams=1, max_tokens=1)


async def last(events: AsyncGenerator[Any, None]) -> Any:
    """The last of some events."""
    newest = None
    async with contextlib.aclosing(events):
        async for event in events:
            newest = event
    return newest
