"""TextGenerator: documents to summaries, to translations or to whatever else a model writes.

All documents, and all chunks of long ones, share the engine's batch. What is a family's own (prefixes, language codes)
comes from its plugin's TextSpec, what is a checkpoint's own for a task from its config's ``task_specific_params``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

from transept.core.config import EngineConfig
from transept.core.engine import ClosesEngine, Engine
from transept.core.jobs.job import Job
from transept.core.request.sampling_params import SamplingParams
from transept.core.request.single_text import WITHOUT_RESULT
from transept.errors import CheckpointError, EngineClosedError, PromptError, TranseptError, UnsupportedModelError
from transept.option_names import shows_options
from transept.registry.plugin_calls import call_declared
from transept.text.document import write_for
from transept.text.encoding import EncodedDocument
from transept.text.generated_text import GeneratedText, TextUpdate
from transept.text.job import Task, TextJob, make_job, offered_tasks
from transept.text.options import TextOptions, TranslationOptions

if TYPE_CHECKING:
    from transept.core.option_types import EngineKeywords
    from transept.text.option_types import TextKeywords, TranslationKeywords


class TextGenerator(ClosesEngine):
    """Keeps a text model loaded.

    model, engine_options: as for Engine. Raises UnsupportedModelError for a model whose encoder takes no text,
    CheckpointError for one without a tokenizer.

    Each of the tasks below takes one document and returns a GeneratedText, or takes several and returns a list in their
    order. If one of several fails, its GeneratedText has an `error`, and the others are not affected. A single
    document raises its error. The options of all tasks:

    truncate: cut the end off a document that is longer than the model reads. chunk: split it at sentences, and join
        the results. With neither, such a document is an error.
    max_source_tokens: the longest document, in encoder tokens. Default: the number of the model's positions; if they
        have no bound (T5), the engine's max_encoder_tokens.
    num_beams, max_tokens and other fields of SamplingParams, except logprobs and prompt_probe. Fields that are not
        set default to the checkpoint's settings for the task: ``task_specific_params`` of its config.json, then its
        generation_config.json.

    Raises ParameterError for a bad option, before anything is computed; EngineClosedError. Errors of a document are
    PromptError where it is empty or too long, CapacityError where it could never fit into memory, RequestFailedError.
    Every method may be called from several threads, and several streams may be open at once: they share the engine's
    batch, and each gets the same results as alone.
    """

    @shows_options(EngineConfig)
    def __init__(self, model: str | Path, **engine_options: Unpack[EngineKeywords]) -> None:
        self._take(Engine(model, **engine_options))

    @classmethod
    def from_engine(cls, engine: Engine) -> TextGenerator:
        """A TextGenerator over an engine that is loaded. Raises what the constructor raises."""
        generator = cls.__new__(cls)
        generator._take(engine)
        return generator

    def _take(self, engine: Engine) -> None:
        self.engine, model = engine, engine.config.model
        if not self.engine.shape.encoder_takes_text:
            call, what = ("read_text", "images") if self.engine.spec.vision else ("transcribe", "speech")
            raise UnsupportedModelError(
                f'"{model}" is a "{self.engine.spec.name}" model, whose encoder takes no text; '
                f"transept.{call} is for {what}",
                param="model",
                value=model,
            )
        if self.engine.tokenizer is None:
            raise CheckpointError(f'"{model}" has no tokenizer; put its tokenizer.json beside the weights')

    @property
    def tasks(self) -> list[Task]:
        """The methods that the checkpoint can do: "generate", and possibly "summarize" and "translate".

        A family may leave a task undefined, which then passes documents unchanged; it is listed if config.json names
        it.
        """
        return offered_tasks(self.engine)

    @property
    def languages(self) -> tuple[list[str], list[str]]:
        """The sources and the targets that `translate` takes, as far as the model's family tells them."""
        spec = self.engine.spec.text
        if spec is None or spec.languages is None:
            return [], []
        sources, targets = call_declared(self.engine.spec, "text.languages", self.engine.view)
        return list(sources), list(targets)

    @overload
    def summarize(self, documents: str, **options: Unpack[TextKeywords]) -> GeneratedText: ...  # type: ignore[overload-overlap]
    @overload
    def summarize(self, documents: Iterable[str], **options: Unpack[TextKeywords]) -> list[GeneratedText]: ...
    @shows_options(TextOptions, SamplingParams, without=WITHOUT_RESULT)
    def summarize(
        self, documents: str | Iterable[str], **options: Unpack[TextKeywords]
    ) -> GeneratedText | list[GeneratedText]:
        """Summarize one document or several. Options: see the class."""
        return self._complete("summarize", documents, options)

    @overload
    def translate(self, documents: str, **options: Unpack[TranslationKeywords]) -> GeneratedText: ...  # type: ignore[overload-overlap]
    @overload
    def translate(self, documents: Iterable[str], **options: Unpack[TranslationKeywords]) -> list[GeneratedText]: ...
    @shows_options(TranslationOptions, SamplingParams, without=WITHOUT_RESULT)
    def translate(
        self, documents: str | Iterable[str], **options: Unpack[TranslationKeywords]
    ) -> GeneratedText | list[GeneratedText]:
        """Translate one document or several.

        source, target: the languages as the model's family names them, such as ``"en"`` and ``"ro"``; each may be left
        out where the model leaves no choice. Other options: see the class.
        """
        return self._complete("translate", documents, options)

    @overload
    def generate(self, documents: str, **options: Unpack[TextKeywords]) -> GeneratedText: ...  # type: ignore[overload-overlap]
    @overload
    def generate(self, documents: Iterable[str], **options: Unpack[TextKeywords]) -> list[GeneratedText]: ...
    @shows_options(TextOptions, SamplingParams, without=WITHOUT_RESULT)
    def generate(
        self, documents: str | Iterable[str], **options: Unpack[TextKeywords]
    ) -> GeneratedText | list[GeneratedText]:
        """What the model writes for one document or several, which it gets as they are. Options: see the class."""
        return self._complete("generate", documents, options)

    @shows_options(TranslationOptions, SamplingParams, without=WITHOUT_RESULT)
    def stream(
        self, task: Task, documents: str | Iterable[str], **options: Unpack[TranslationKeywords]
    ) -> Iterator[TextUpdate]:
        """Run a task and tell what is written as soon as it is final, document after document in their order.

        The document whose turn it is is told piece by piece, unless by a beam search, which settles a text only at its
        end. Those after it are computed at the same time and told when their turn comes. documents is read no further
        than the batch needs. A document that cannot be run gives its error in its place.
        options: those of the task's method. Raises ParameterError at once for a bad one.
        """
        job = make_job(self.engine, task, options)
        return self._updates(_several(documents), job)

    @shows_options(TranslationOptions, SamplingParams, without=WITHOUT_RESULT)
    def job(self, task: Task, document: str, *, stream: bool = False, **options: Unpack[TranslationKeywords]) -> Job:
        """A job for `engine.runner` (docs/jobs.md), whose result is a GeneratedText.

        stream: its events are pieces of the text (str), as they become final; all but what the last token adds.
        options: those of the task's method. Raises ParameterError at once for a bad one.
        """
        return write_for(document, make_job(self.engine, task, options), stream)

    def _updates(self, documents: Iterable[str], job: TextJob) -> Generator[TextUpdate, None, None]:
        """What comes up, document after document; of those whose turn has not come it is kept."""
        kept: dict[int, TextUpdate] = {}
        turn = num_told = 0  # the document that is told, and how many of its characters have been
        with closing(self._run(write_for(document, job, stream=True) for document in documents)) as events:
            for index, event in events:
                kept[index] = _with(event, kept.get(index, TextUpdate(index, "")))
                while turn in kept:
                    update = kept.pop(turn)
                    num_told += len(update.text)
                    if isinstance(update.result, GeneratedText):
                        update = dataclasses.replace(update, text=update.text + update.result.text[num_told:])
                    yield update
                    if update.result is None:
                        break
                    turn, num_told = turn + 1, 0

    def _complete(
        self, task: Task, documents: str | Iterable[str], options: Mapping[str, Any]
    ) -> GeneratedText | list[GeneratedText]:
        """Return every text in the documents' order; all documents are encoded before any is computed."""
        job = make_job(self.engine, task, options)
        several = list(_several(documents))
        results: dict[int, GeneratedText | TranseptError] = {}
        encoded: dict[int, EncodedDocument] = {}
        for index, document in enumerate(several):
            try:
                encoded[index] = job.encoder(document)
            except PromptError as error:
                results[index] = error
        numbers = list(encoded)
        with closing(self._run(write_for(each, job, stream=False) for each in encoded.values())) as events:
            for number, result in events:
                results[numbers[number]] = result
        for each in results.values():
            if isinstance(each, TranseptError) and (isinstance(documents, str) or isinstance(each, EngineClosedError)):
                raise each
        texts = [
            GeneratedText.failed(each) if isinstance(each, TranseptError) else each
            for _, each in sorted(results.items())
        ]
        return texts[0] if isinstance(documents, str) else texts

    def _run(self, jobs: Iterable[Job]) -> Generator[tuple[int, Any], None, None]:
        """Run documents' jobs; twice as many as run at a time are started, so that the batch never runs dry."""
        return self.engine.runner.run(jobs, max_jobs=2 * self.engine.config.max_num_seqs)


def _several(documents: Any) -> Iterable[str]:
    """Documents, of which one may stand alone. Raises PromptError for what is neither."""
    if isinstance(documents, str):
        return [documents]
    if isinstance(documents, bytes) or not isinstance(documents, Iterable):
        raise PromptError(f"a document is a string, and several are a list of them, not {type(documents).__name__}")
    return documents


def _with(event: str | GeneratedText | TranseptError, kept: TextUpdate) -> TextUpdate:
    """What is kept of a document, with what has come up since: more text, or its result."""
    if isinstance(event, str):
        return dataclasses.replace(kept, text=kept.text + event)
    return dataclasses.replace(kept, result=event)
