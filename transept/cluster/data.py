"""Transcribe, Summarize, Translate and Read: classes for ``Dataset.map_batches`` of Ray Data.

    dataset.map_batches(
        Transcribe,
        fn_constructor_kwargs={"model": "base", "language": "de"},
        compute=ray.data.ActorPoolStrategy(size=4),
        batch_size=16,
        num_cpus=2,
    )

Each is constructed once in an actor, where it loads the model, and called with batches: dicts of columns, or Arrow
tables (``batch_format="pyarrow"``), which have the same schema for every batch. The engine batches all rows of a call
continuously, together with the rows of other calls in the same actor. A row that fails gets its error; the others get
their results. An instance can also be called without Ray.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from transept.cluster.columns import SPEECH_COLUMNS, TEXT_COLUMNS, Batch, has_column, values_of, with_columns
from transept.cluster.files import open_binary, read_text
from transept.cluster.runtime import replica_threads
from transept.core.config import EngineConfig
from transept.core.request.sampling_params import SamplingParams
from transept.core.request.single_text import params_of_single_text
from transept.errors import PromptError, TranseptError
from transept.options import split_options
from transept.speech.option_checks import check_options
from transept.speech.options import TranscriptionOptions
from transept.speech.transcriber import Transcriber
from transept.text.generator import TextGenerator
from transept.text.options import TextOptions, TranslationOptions
from transept.vision.options import ReadingOptions
from transept.vision.reader import VisionReader

if TYPE_CHECKING:
    from transept.speech.option_types import TranscriptionAndEngineKeywords
    from transept.text.option_types import TranslationAndEngineKeywords
    from transept.vision.option_types import ReadingAndEngineKeywords

# Task -> the dataclasses of its options.
OPTIONS: dict[str, tuple[Any, ...]] = {
    "transcribe": (TranscriptionOptions,),
    "summarize": (TextOptions, SamplingParams),
    "translate": (TranslationOptions, SamplingParams),
    "read": (ReadingOptions, SamplingParams),
}

Options = dict[str, Any]
SEVERAL = ("n", "num_beams", "num_return_sequences")  # a row has a column for one text


class Transcribe:
    """Speech to text: adds text, segments, language, duration, warnings, reason and error to a batch.

    model: as for Engine. column: contains paths, URIs that pyarrow reads (``s3://...``, ``gs://...``, ``file://...``),
        or the bytes of files. options: of Transcriber.transcribe, such as ``language="de"``, and of Engine, such
        as ``quantization="int8"``. threads defaults to the number of CPUs that Ray gave the actor.

    text: the transcript. segments: as from Segment.to_dict. language: code. duration: seconds. warnings, reason:
    as in a Transcript. error: None, or the message of the error; then segments is empty and the other columns
    hold None.
    Raises ParameterError at once for a bad option, and as Engine for a model that cannot be loaded.
    """

    names: Mapping[str, str] = {}  # option -> its name in errors, if not Python's; set by Replica

    def __init__(
        self, model: str | Path, *, column: str = "file", **options: Unpack[TranscriptionAndEngineKeywords]
    ) -> None:
        self.column = column
        engine, self.options = task_options("transcribe", model, options)
        self.transcriber = Transcriber(model, **_with_threads(engine))
        speech = self.transcriber.model
        checked = speech.options(self.options)
        check_options(speech, checked)
        checked.refuse_several("is for the recordings of one call, and other replicas have others; leave it out")
        self.engine = self.transcriber.engine

    def __call__(self, batch: Batch) -> Batch:
        """Return the batch with its results. Raises ParameterError for a batch without the column."""
        values = values_of(batch, self.column)
        rows: list[dict[str, Any]] = [{"segments": []} for _ in values]
        read: list[int] = []
        audios = _readable(values, open_binary, rows, read, self.names)
        with closing(self.transcriber.transcribe_as_completed(audios, **self.options)) as results:
            for number, result in results:
                if isinstance(result, TranseptError):
                    rows[read[number]]["error"] = _message(result, self.names)
                else:
                    found = result.to_dict()
                    rows[read[number]] = {name: found[name] for name in SPEECH_COLUMNS if name != "error"}
        return with_columns(batch, rows, SPEECH_COLUMNS)


class TextTask:
    """Base class of Summarize and Translate. task: a task of TextGenerator."""

    task: Literal["summarize", "translate"]
    names: Mapping[str, str] = {}  # see Transcribe

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
        engine, self.options = task_options(self.task, model, options)
        params_of_single_text("a row", {name: self.options[name] for name in SEVERAL if name in self.options})
        self.generator = TextGenerator(model, **_with_threads(engine))
        self.generator.stream(self.task, [], **self.options)  # raises for a task that the model cannot do
        self.engine = self.generator.engine

    def __call__(self, batch: Batch) -> Batch:
        """Return the batch with its results. Raises ParameterError for a batch without a column of documents."""
        sources = self._sources(batch)
        rows: list[dict[str, Any]] = [{} for _ in sources]
        read: list[int] = []
        documents = _readable(sources, _document, rows, read, self.names)
        for update in self.generator.stream(self.task, documents, **self.options):
            if isinstance(update.result, TranseptError):
                rows[read[update.index]]["error"] = _message(update.result, self.names)
            elif update.result is not None:
                rows[read[update.index]][self.output_column] = update.result.text
        return with_columns(batch, rows, {self.output_column: TEXT_COLUMNS["text"], "error": TEXT_COLUMNS["error"]})

    def _sources(self, batch: Batch) -> list[tuple[Any, Any]]:
        """Return the document of each row, or None with the file that contains it."""
        if not has_column(batch, self.file_column):
            return [("" if value is None else value, None) for value in values_of(batch, self.column)]
        files = values_of(batch, self.file_column)
        documents = values_of(batch, self.column) if has_column(batch, self.column) else [None] * len(files)
        return list(zip(documents, files, strict=True))


class Summarize(TextTask):
    """Documents to summaries: sets the column ``text`` of a batch, and adds ``error``.

    model: as for Engine. column: contains documents, as text or UTF-8. file_column: path or URI of a file, for rows
        whose document is None. output_column: for the summaries; by default they replace the documents.
    options: of TextGenerator.summarize, such as ``max_tokens=60``, and of Engine, such as ``device="cuda"``.
        threads defaults to the number of CPUs that Ray gave the actor.

    error: None, or the message of the error. The text of a failed row is missing.
    Raises ParameterError at once for a bad option, and as Engine for a model that cannot be loaded.
    """

    task = "summarize"


class Translate(TextTask):
    """Documents to translations, in the same way as Summarize.

    options: of TextGenerator.translate, such as ``source="en", target="de"``, and of Engine.
    """

    task = "translate"


class Read:
    """Images to the text in them: adds ``text`` and ``error`` to a batch.

    model, column: as for Transcribe, of files of images.
    options: of VisionReader.read, such as ``task="caption"`` or ``max_tokens=60``, and of Engine. threads
        defaults to the number of CPUs that Ray gave the actor.

    text: the text in the image, None if there is an error. error: None, or the message of the error.
    Raises ParameterError at once for a bad option, and as VisionReader for a model that cannot be loaded.
    """

    names: Mapping[str, str] = {}  # see Transcribe

    def __init__(self, model: str | Path, *, column: str = "file", **options: Unpack[ReadingAndEngineKeywords]) -> None:
        self.column = column
        engine, self.options = task_options("read", model, options)
        self.reader = VisionReader(model, **_with_threads(engine))
        self.reader.stream([], **self.options)  # raises for a task that the model cannot do
        self.engine = self.reader.engine

    def __call__(self, batch: Batch) -> Batch:
        """Return the batch with its results. Raises ParameterError for a batch without the column."""
        values = values_of(batch, self.column)
        rows: list[dict[str, Any]] = [{} for _ in values]
        read: list[int] = []
        images = _readable(values, open_binary, rows, read, self.names)
        for number, result in enumerate(self.reader.stream(images, **self.options)):
            error = None if result.error is None else _message(result.error, self.names)
            rows[read[number]] = {"text": result.text if error is None else None, "error": error}
        return with_columns(batch, rows, TEXT_COLUMNS)


def task_options(task: str, model: str | Path, options: Mapping[str, Any]) -> tuple[Options, Options]:
    """Return the options of the engine, and the options of a task. Raises ParameterError for a bad one."""
    kinds = OPTIONS[task]
    engine, *parts = split_options(f"{task.capitalize()} has no option", options, EngineConfig, *kinds)
    EngineConfig(str(model), **engine)
    for kind, part in zip(kinds, parts, strict=True):
        kind(**part)
    return engine, {name: value for part in parts for name, value in part.items()}


def _with_threads(engine: Options) -> Options:
    """Return the engine's options, with the number of CPUs that Ray gave this actor as default of threads."""
    if engine.get("threads") is not None:
        return engine
    return {**engine, "threads": replica_threads()}


def _readable(
    values: Iterable[Any],
    read_value: Callable[[Any], Any],
    rows: list[dict[str, Any]],
    read: list[int],
    names: Mapping[str, str],
) -> Iterator[Any]:
    """Yield the values that can be read, and append their rows' indices to `read`. Other rows get an error."""
    for index, value in enumerate(values):
        try:
            found = read_value(value)
        except TranseptError as error:
            rows[index]["error"] = _message(error, names)
            continue
        read.append(index)
        yield found


def _document(source: tuple[Any, Any]) -> str:
    """Return the document of a row, from its text or its file. Raises PromptError."""
    value, file = source
    if value is None:
        return read_text(file)
    try:
        document = bytes(value).decode("utf-8-sig") if isinstance(value, bytes | bytearray | memoryview) else value
    except UnicodeDecodeError as error:
        raise PromptError(f"the document is not UTF-8 text ({error})") from None
    if not isinstance(document, str):
        raise PromptError(f"a document is text, not {type(document).__name__}")
    return document


def _message(error: TranseptError, names: Mapping[str, str]) -> str:
    """Return an error's message with options named as the user writes them. names: option -> flag; {}: as in Python."""

    def assigned(name: str, value: Any) -> str:
        if name not in names:
            return f"{name}={value!r}"
        return names[name] if value is True else f"{names[name]} {value}"

    return error.spelt(lambda name: names.get(name, name), assigned) or type(error).__name__
