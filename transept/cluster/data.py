"""Transcribe, Summarize, Translate and Read: what ``Dataset.map_batches`` of Ray Data takes, in anybody's pipeline.

    dataset.map_batches(
        Transcribe,
        fn_constructor_kwargs={"model": "base", "language": "de"},
        compute=ray.data.ActorPoolStrategy(size=4),
        batch_size=16,
        num_cpus=2,
    )

Each is constructed once in an actor, where it loads the model, and called with batches: dicts of columns, or tables of
Arrow (``batch_format="pyarrow"``), which keep one schema whatever a batch holds. All rows of a batch are in the
engine's continuous batch together, and with those of other calls in the same actor. A row that cannot be done gets its
error, and the others their results. Ray itself is not needed: an instance may be called by anyone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from transept.cluster.columns import SPEECH_COLUMNS, TEXT_COLUMNS, Batch, has_column, values_of, with_columns
from transept.cluster.files import open_binary, read_text
from transept.cluster.runtime import replica_threads
from transept.core.config import EngineConfig
from transept.core.request.sampling_params import SamplingParams
from transept.errors import PromptError, TranseptError
from transept.options import split_options
from transept.speech.options import TranscriptionOptions
from transept.speech.transcriber import Transcriber
from transept.speech.transcript import Transcript
from transept.text.generator import TextGenerator
from transept.text.options import TextOptions, TranslationOptions
from transept.vision.options import ReadingOptions
from transept.vision.reader import VisionReader

if TYPE_CHECKING:
    from transept.speech.option_types import TranscriptionAndEngineKeywords
    from transept.text.option_types import TranslationAndEngineKeywords
    from transept.vision.option_types import ReadingAndEngineKeywords

ENGINE_OPTIONS = tuple(each.name for each in dataclasses.fields(EngineConfig) if each.name != "model")
TRANSLATED = "translate"

Options = dict[str, Any]


class Transcribe:
    """Speech to text: adds text, segments, language, duration, warnings, reason and error to a batch.

    model: as for Engine. column: holds paths, URIs that pyarrow reads (``s3://...``, ``gs://...``, ``file://...``), or
        the bytes of files. options: those of Transcriber.transcribe, such as ``language="de"``, and of Engine, such as
        ``quantization="int8"``. threads defaults to the number of CPUs that Ray gave the actor.

    text: the transcript. segments: as Segment.to_dict gives them. language: code. duration: seconds. warnings, reason:
    as in a Transcript. error: None, or the message of the error; then segments is empty and the others are None.
    Raises ParameterError at once for a bad option, and what Engine raises for a model that cannot be loaded.
    """

    def __init__(
        self, model: str | Path, *, column: str = "file", **options: Unpack[TranscriptionAndEngineKeywords]
    ) -> None:
        self.column = column
        engine, self.options = speech_options(model, options)
        self.transcriber = Transcriber(model, **_with_threads(engine))
        speech = self.transcriber.model
        speech.check(speech.options(self.options))
        self.engine = self.transcriber.engine

    def __call__(self, batch: Batch) -> Batch:
        """The batch with its results. Raises ParameterError for a batch without the column."""
        values = values_of(batch, self.column)
        rows: list[Mapping[str, Any]] = [{"segments": []} for _ in values]
        opened: list[int] = []  # the rows that the recordings which were handed over stand in

        def audios() -> Iterator[Any]:
            for index, value in enumerate(values):
                try:
                    audio = open_binary(value)
                except TranseptError as error:
                    rows[index] = {"segments": [], "error": _told(error)}
                    continue
                opened.append(index)
                yield audio

        with closing(self.transcriber.transcribe_as_completed(audios(), **self.options)) as results:
            for number, result in results:
                rows[opened[number]] = _speech_row(result)
        return with_columns(batch, rows, SPEECH_COLUMNS)


class TextTask:
    """What Summarize and Translate share; see there. task: of TextGenerator."""

    task: Literal["summarize", "translate"]

    def __init__(
        self,
        model: str | Path,
        *,
        column: str = "text",
        file_column: str = "file",
        output_column: str = "text",
        **options: Unpack[TranslationAndEngineKeywords],
    ) -> None:
        self.column, self.file_column, self.output_column = column, file_column, output_column
        engine, self.options = text_options(self.task, model, options)
        self.generator = TextGenerator(model, **_with_threads(engine))
        self.generator.stream(self.task, [], **self.options)  # raises for what this model does not do
        self.engine = self.generator.engine

    def __call__(self, batch: Batch) -> Batch:
        """The batch with its results. Raises ParameterError for a batch without any column of documents."""
        rows: list[dict[str, Any]] = []
        read: list[int] = []  # the rows that the documents which were handed over stand in
        sources = self._sources(batch)
        rows.extend({} for _ in sources)

        def documents() -> Iterator[str]:
            for index, (value, file) in enumerate(sources):
                try:
                    document = read_text(file) if value is None else _document(value)
                except TranseptError as error:
                    rows[index] = {"error": _told(error)}
                    continue
                read.append(index)
                yield document

        updates = self.generator.stream(self.task, documents(), **self.options)
        for update in updates:
            if isinstance(update.result, TranseptError):
                rows[read[update.index]] = {"error": _told(update.result)}
            elif update.result is not None:
                rows[read[update.index]] = {self.output_column: update.result.text}
        return with_columns(batch, rows, {self.output_column: TEXT_COLUMNS["text"], "error": TEXT_COLUMNS["error"]})

    def _sources(self, batch: Batch) -> list[tuple[Any, Any]]:
        """Of each row its document, or None and the file that holds it."""
        if not has_column(batch, self.file_column):
            return [("" if value is None else value, None) for value in values_of(batch, self.column)]
        files = values_of(batch, self.file_column)
        documents = values_of(batch, self.column) if has_column(batch, self.column) else [None] * len(files)
        return list(zip(documents, files, strict=True))


class Summarize(TextTask):
    """Documents to summaries: puts them into the column ``text``, and adds ``error``, to a batch.

    model: as for Engine. column: holds documents, as text or UTF-8. file_column: where a row's document is None, the
        path or the URI of the file that holds it. output_column: holds the summaries; by default they take the place
        of the documents.
    options: those of TextGenerator.summarize, such as ``max_tokens=60``, and of Engine, such as ``device="cuda"``.
        threads defaults to the number of CPUs that Ray gave the actor.

    error: None, or what went wrong, where the text is None.
    Raises ParameterError at once for a bad option, and what Engine raises for a model that cannot be loaded.
    """

    task = "summarize"


class Translate(TextTask):
    """Documents to translations, as Summarize makes summaries.

    options: those of TextGenerator.translate, such as ``source="en", target="de"``, and of Engine.
    """

    task = "translate"


class Read:
    """Images to the text in them: adds ``text`` and ``error`` to a batch.

    model, column: as for Transcribe, of files of images.
    options: those of VisionReader.read, such as ``task="caption"`` or ``max_tokens=60``, and of Engine. threads is
        the number of CPUs that Ray gave the actor, unless it is told.

    text: what the model reads. error: None, or what went wrong, where the text is None.
    Raises ParameterError at once for a bad option, and what VisionReader raises for a model that cannot be loaded.
    """

    def __init__(self, model: str | Path, *, column: str = "file", **options: Unpack[ReadingAndEngineKeywords]) -> None:
        self.column = column
        engine, self.options = image_options(model, options)
        self.reader = VisionReader(model, **_with_threads(engine))
        self.reader.stream([], **self.options)  # raises for what this model does not do
        self.engine = self.reader.engine

    def __call__(self, batch: Batch) -> Batch:
        """The batch with its results. Raises ParameterError for a batch without the column."""
        values = values_of(batch, self.column)
        rows: list[dict[str, Any]] = [{} for _ in values]
        opened: list[int] = []  # the rows that the images which were handed over stand in

        def images() -> Iterator[Any]:
            for index, value in enumerate(values):
                try:
                    image = open_binary(value)
                except TranseptError as error:
                    rows[index] = {"error": _told(error)}
                    continue
                opened.append(index)
                yield image

        for number, result in enumerate(self.reader.stream(images(), **self.options)):
            error = result.error
            rows[opened[number]] = {"text": result.text} if error is None else {"error": _told(error)}
        return with_columns(batch, rows, TEXT_COLUMNS)


def speech_options(model: str | Path, options: Mapping[str, Any]) -> tuple[Options, Options]:
    """Options of the engine, and those of the transcription. Raises ParameterError for a bad one."""
    engine, rest = split_options("Transcribe has no option", options, EngineConfig, TranscriptionOptions)
    EngineConfig(str(model), **engine)
    TranscriptionOptions(**rest)
    return engine, rest


def text_options(task: str, model: str | Path, options: Mapping[str, Any]) -> tuple[Options, Options]:
    """Options of the engine, and those of a text task. Raises ParameterError for a bad one."""
    kind, what = TranslationOptions if task == TRANSLATED else TextOptions, f"{task.capitalize()} has no option"
    engine, own, sampling = split_options(what, options, EngineConfig, kind, SamplingParams)
    EngineConfig(str(model), **engine)
    kind(**own)
    SamplingParams(**sampling)
    return engine, {**own, **sampling}


def image_options(model: str | Path, options: Mapping[str, Any]) -> tuple[Options, Options]:
    """Options of the engine, and those of VisionReader.read. Raises ParameterError for a bad one."""
    engine, own, sampling = split_options("Read has no option", options, EngineConfig, ReadingOptions, SamplingParams)
    EngineConfig(str(model), **engine)
    ReadingOptions(**own)
    SamplingParams(**sampling)
    return engine, {**own, **sampling}


def engine_options(options: Mapping[str, Any]) -> Options:
    """Those of the engine."""
    return {name: value for name, value in options.items() if name in ENGINE_OPTIONS}


def _with_threads(engine: Options) -> Options:
    """The engine's options with a number of threads: what Ray gave this actor, unless they tell it."""
    if engine.get("threads") is not None:
        return engine
    return {**engine, "threads": replica_threads()}


def _speech_row(result: Transcript | TranseptError) -> Mapping[str, Any]:
    if isinstance(result, TranseptError):
        return {"segments": [], "error": _told(result)}
    return {
        "text": result.text,
        "segments": [segment.to_dict() for segment in result.segments],
        "language": result.language,
        "duration": result.duration,
        "warnings": result.warnings,
        "reason": result.reason,
    }


def _document(value: Any) -> str:
    """A document. Raises PromptError for what is none."""
    try:
        document = bytes(value).decode("utf-8-sig") if isinstance(value, bytes | bytearray | memoryview) else value
    except UnicodeDecodeError as error:
        raise PromptError(f"it is not UTF-8 text ({error})") from None
    if not isinstance(document, str):
        raise PromptError(f"a document is text, not {type(document).__name__}")
    return document


def _told(error: TranseptError) -> str:
    return str(error) or type(error).__name__
