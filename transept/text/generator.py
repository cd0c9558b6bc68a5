"""TextGenerator: summarize documents, translate them, or generate other text from them.

All documents, and all chunks of long ones, share the engine's batch. A family's prefixes and language codes come from
its plugin's TextSpec, and a checkpoint's settings of a task from ``task_specific_params`` of its config.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast, overload

from transept.core.config import EngineConfig
from transept.core.engine import ClosesEngine, Engine
from transept.core.jobs.job import Job
from transept.core.request.sampling_params import SamplingParams
from transept.core.request.single_text import WITHOUT_RESULT
from transept.errors import CheckpointError, EngineClosedError, PromptError, TranseptError, UnsupportedModelError
from transept.option_names import shows_options
from transept.registry.plugin_calls import call_declared
from transept.text.document import write_for
from transept.text.embedding import Embedder, TextEmbedding
from transept.text.encoding import EncodedDocument
from transept.text.generated_text import GeneratedText, TextUpdate
from transept.text.job import Task, TextJob, make_job, offered_tasks
from transept.text.options import EmbeddingOptions, ScoringOptions, TextOptions, TranslationOptions
from transept.text.scoring import Scorer, TextScore, paired

if TYPE_CHECKING:
    from transept.core.option_types import EngineKeywords
    from transept.text.option_types import EmbeddingKeywords, ScoringKeywords, TextKeywords, TranslationKeywords


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
    decoder_prompt: a text, or token ids, that every document's text continues.
    num_beams, max_tokens and other fields of SamplingParams, except logprobs and prompt_probe. Fields that are not
        set default to the checkpoint's settings for the task: ``task_specific_params`` of its config.json, then its
        generation_config.json. With n or num_return_sequences, a result has further texts: `alternatives`.

    Raises ParameterError for a bad option, before anything is computed, and EngineClosedError. Errors of a document are
    PromptError if it is empty or too long, CapacityError if it can never fit into memory, and RequestFailedError.
    Every method may be called from several threads, and several streams may be open at once: they share the engine's
    batch, and each gets the same results as alone.
    """

    @shows_options(EngineConfig)
    def __init__(self, model: str | Path, **engine_options: Unpack[EngineKeywords]) -> None:
        self._take(Engine(model, **engine_options))

    @classmethod
    def from_engine(cls, engine: Engine) -> TextGenerator:
        """Make a TextGenerator over a loaded engine. Raises the constructor's errors."""
        generator = cls.__new__(cls)
        generator._take(engine)
        return generator

    def _take(self, engine: Engine) -> None:
        self.engine, model = engine, engine.config.model
        if not self.engine.shape.encoder_takes_text:
            task = "read images" if self.engine.spec.vision else "transcribe speech"
            raise UnsupportedModelError(
                f'"{model}" is a "{self.engine.spec.name}" model, whose encoder takes no text; its task is to {task}',
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
        """The source and target languages of `translate`, if the model's family declares them."""
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
        out if the model leaves no choice. Other options: see the class.
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
        """Generate text from one document or several, which the model reads unchanged. Options: see the class."""
        return self._complete("generate", documents, options)

    @overload
    def score(self, documents: str, targets: str, **options: Unpack[ScoringKeywords]) -> TextScore: ...  # type: ignore[overload-overlap]
    @overload
    def score(
        self, documents: str | Iterable[str], targets: str | Iterable[str], **options: Unpack[ScoringKeywords]
    ) -> list[TextScore]: ...
    @shows_options(ScoringOptions, without=("chunk", "decoder_prompt"))
    def score(
        self, documents: str | Iterable[str], targets: str | Iterable[str], **options: Unpack[ScoringKeywords]
    ) -> TextScore | list[TextScore]:
        """Return how likely the model finds a target text for a document.

        Several documents and as many targets are pairs, in their order; one document, or one target, goes with each of
        the others. Returns a list for several, in which a pair that failed has an `error`; a single pair raises its
        error. A document with several targets is encoded once.
        task: how the model is given a document, as by the method of this name. source, target: languages, as for
        `translate`. truncate, max_source_tokens: see the class.
        Raises ParameterError for a bad option, and for numbers of documents and targets that differ.
        """
        scorer, pairs = Scorer(self.engine, options), paired(documents, targets)
        with closing(self._run(scorer.score_for(*pair) for pair in pairs)) as events:
            results = dict(events)
        is_single = isinstance(documents, str) and isinstance(targets, str)
        return cast(
            "TextScore | list[TextScore]",
            _in_order(results, is_single, lambda index, error: TextScore.failed(pairs[index][1], error)),
        )

    @overload
    def encode(self, documents: str, **options: Unpack[EmbeddingKeywords]) -> TextEmbedding: ...  # type: ignore[overload-overlap]
    @overload
    def encode(self, documents: Iterable[str], **options: Unpack[EmbeddingKeywords]) -> list[TextEmbedding]: ...
    @shows_options(EmbeddingOptions, without=("chunk", "decoder_prompt"))
    def encode(
        self, documents: str | Iterable[str], **options: Unpack[EmbeddingKeywords]
    ) -> TextEmbedding | list[TextEmbedding]:
        """Return a document's embedding: the output of the encoder, pooled. The decoder does not run.

        Returns a list for several documents, in which one that failed has an `error`; a single one raises its error.
        pooling: "mean" over all tokens, "cls" for the first token, "last", "max", or "none" for the rows of all tokens.
        normalize: divide each vector by its length.
        task: how the model is given a document, as by the method of this name. source, target: languages, as for
        `translate`. truncate, max_source_tokens: see the class.
        Raises ParameterError for a bad option.
        """
        embedder = Embedder(self.engine, options)
        with closing(self._run(embedder.embed_for(each) for each in _several(documents))) as events:
            results = dict(events)
        return cast(
            "TextEmbedding | list[TextEmbedding]",
            _in_order(results, isinstance(documents, str), lambda _, error: TextEmbedding.failed(error)),
        )

    @shows_options(TranslationOptions, SamplingParams, without=WITHOUT_RESULT)
    def stream(
        self, task: Task, documents: str | Iterable[str], **options: Unpack[TranslationKeywords]
    ) -> Iterator[TextUpdate]:
        """Run a task and yield text when it is final, document after document in their order.

        The current document's text is yielded piece by piece, except with a beam search, whose text is final only at
        its end. Later documents are computed at the same time, and yielded in their turn. Documents are read as the
        batch needs them. A document that fails yields its error in its place.
        options: see the task's method. Raises ParameterError immediately for an invalid one.
        """
        job = make_job(self.engine, task, options)
        return self._updates(_several(documents), job)

    @shows_options(TranslationOptions, SamplingParams, without=WITHOUT_RESULT)
    def job(self, task: Task, document: str, *, stream: bool = False, **options: Unpack[TranslationKeywords]) -> Job:
        """A job for `engine.runner` (docs/jobs.md), whose result is a GeneratedText.

        stream: True for events with pieces of the text (str) when they are final, except the text of the last token.
        options: see the task's method. Raises ParameterError immediately for an invalid one.
        """
        return write_for(document, make_job(self.engine, task, options), stream)

    def _updates(self, documents: Iterable[str], job: TextJob) -> Generator[TextUpdate, None, None]:
        """Yield updates, document after document. Updates of later documents are kept until their turn."""
        kept: dict[int, TextUpdate] = {}
        turn = num_told = 0  # the current document, and the number of its characters yielded
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
        return cast(
            "GeneratedText | list[GeneratedText]",
            _in_order(results, isinstance(documents, str), lambda _, error: GeneratedText.failed(error)),
        )

    def _run(self, jobs: Iterable[Job]) -> Generator[tuple[int, Any], None, None]:
        """Run documents' jobs. Twice as many as run at a time are started, so that the batch stays full."""
        return self.engine.runner.run(jobs, max_jobs=2 * self.engine.config.max_num_seqs)


def _in_order(results: Mapping[int, Any], is_single: bool, failed: Callable[[int, TranseptError], Any]) -> Any:
    """Return results in the order of their indices; an error becomes a failed result. is_single: return the only one.

    Raises the error of a single one, and EngineClosedError of any.
    """
    for each in results.values():
        if isinstance(each, TranseptError) and (is_single or isinstance(each, EngineClosedError)):
            raise each
    ordered = [
        failed(index, each) if isinstance(each, TranseptError) else each for index, each in sorted(results.items())
    ]
    return ordered[0] if is_single else ordered


def _several(documents: Any) -> Iterable[str]:
    """Return several documents, also for a single one. Raises PromptError for anything else."""
    if isinstance(documents, str):
        return [documents]
    if isinstance(documents, bytes | Mapping) or not isinstance(documents, Iterable):
        raise PromptError(f"a document is a string, and several are a list of them, not {type(documents).__name__}")
    return documents


def _with(event: str | GeneratedText | TranseptError, kept: TextUpdate) -> TextUpdate:
    """Add an event to a document's kept update: more text, or its result."""
    if isinstance(event, str):
        return dataclasses.replace(kept, text=kept.text + event)
    return dataclasses.replace(kept, result=event)
