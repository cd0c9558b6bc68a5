"""The options of text tasks, in addition to SamplingParams, and of scores and embeddings.

Commands take their flags from these declarations. Languages and the longest document are checked later, with the model.
No torch here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar, Literal

from transept.core.request.adapter_options import LORA
from transept.core.request.pooling import Pooling
from transept.core.request.sampling_values import text_or_token_ids
from transept.errors import ParameterError
from transept.options import MAX_INTEGER, Option, declares_options, refusal, take_options

SUMMARIZE_MODEL = "facebook/bart-large-cnn"  # default
TRANSLATE_MODEL = "google-t5/t5-base"
LONG_DOCUMENTS = "long documents"
LANGUAGES = "languages"

_language = partial(
    Option,
    more="As the model's family names it; it may be left out if the model leaves no choice.",
    group=LANGUAGES,
    metavar="LANGUAGE",
    wanted='a language as the model names it, such as "en"',
)


@declares_options("text tasks have no option")
@dataclass(frozen=True)
class TextOptions:
    """How documents are given to a text model.

    Raises ParameterError for an unknown option, a value out of range, or options that contradict each other.
    """

    truncate: Annotated[
        bool, Option("cut the end off documents that are too long", group=LONG_DOCUMENTS, aliases=("truncation",))
    ] = False
    chunk: Annotated[
        bool, Option("split such documents at sentences, and join the chunks' texts", group=LONG_DOCUMENTS)
    ] = False
    max_source_tokens: Annotated[
        int | None,
        Option(
            "longest document, in tokens of the encoder",
            "None: the number of the model's positions; if they have no bound (T5), the engine's max_encoder_tokens.",
            group=LONG_DOCUMENTS,
            metavar="N",
            default="the model's limit",
            ge=1,
            le=MAX_INTEGER,
        ),
    ] = None

    lora: Annotated[str | None, LORA] = None
    decoder_prompt: Annotated[
        str | Sequence[int] | None,
        Option(
            "text that the model's text continues",
            "Or its token ids. It comes after the tokens with which the task's texts begin, and is not in the result.",
            metavar="TEXT",
            parse=text_or_token_ids,
        ),
    ] = None

    def __post_init__(self) -> None:
        take_options(self)
        if self.truncate and self.chunk:
            raise ParameterError(
                "{truncate} and {chunk} exclude each other: choose one",
                param="truncate",
                value=True,
                others={"chunk": True},
            )


@declares_options("translate has no option")
@dataclass(frozen=True)
class TranslationOptions(TextOptions):
    """How documents are translated.

    Raises ParameterError as TextOptions.
    """

    source: Annotated[
        str | None,
        _language(
            "language to translate from: de, for NLLB deu_Latn",
            aliases=("source_language", "src_lang"),
            flag="source_language",
        ),
    ] = None
    target: Annotated[
        str | None,
        _language(
            "language to translate to: de, for NLLB deu_Latn",
            aliases=("target_language", "tgt_lang"),
            flag="target_language",
        ),
    ] = None


@dataclass(frozen=True)
class _WholeDocumentOptions(TranslationOptions):
    """How documents are given to a model whose result is not a text."""

    task: Annotated[
        Literal["generate", "summarize", "translate"],
        Option("how the model is given documents; generate: unchanged", group="documents"),
    ] = "generate"
    _result: ClassVar[str]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.chunk:
            which = "of a whole document, not of chunks; leave {chunk} out, or {truncate=True}"
            raise refusal(self, f"{self._result} is {which}")
        if self.decoder_prompt is not None:
            raise refusal(self, f"{self._result} has no decoder prompt; leave {{decoder_prompt}} out")


@declares_options("score has no option")
@dataclass(frozen=True)
class ScoringOptions(_WholeDocumentOptions):
    """How documents are given to a model that scores texts.

    Raises ParameterError as TextOptions, for chunk and for decoder_prompt: a score is of a whole document.
    """

    _result = "a score"


@declares_options("encode has no option")
@dataclass(frozen=True)
class EmbeddingOptions(_WholeDocumentOptions, Pooling):
    """How documents are given to an encoder, and how its output is pooled.

    Raises ParameterError as TextOptions, for chunk and for decoder_prompt: an embedding is of a whole document.
    """

    _result = "an embedding"
