"""summarize, translate, generate, score, embed: TextGenerator's tasks with a model that is loaded for one call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

from transept.core.config import EngineConfig
from transept.core.request.sampling_params import SamplingParams
from transept.core.request.single_text import REFUSED
from transept.option_names import shows_options
from transept.options import split_options
from transept.text.embedding import TextEmbedding
from transept.text.generated_text import GeneratedText
from transept.text.generator import TextGenerator
from transept.text.options import SUMMARIZE_MODEL, TRANSLATE_MODEL, EmbeddingOptions, ScoringOptions, TranslationOptions
from transept.text.scoring import TextScore

if TYPE_CHECKING:
    from transept.text.option_types import (
        EmbeddingAndEngineKeywords,
        ScoringAndEngineKeywords,
        TextAndEngineKeywords,
        TranslationAndEngineKeywords,
    )


@overload
def summarize(  # type: ignore[overload-overlap]
    documents: str, model: str | Path = SUMMARIZE_MODEL, **options: Unpack[TextAndEngineKeywords]
) -> GeneratedText: ...
@overload
def summarize(
    documents: Iterable[str], model: str | Path = SUMMARIZE_MODEL, **options: Unpack[TextAndEngineKeywords]
) -> list[GeneratedText]: ...
@shows_options(TextGenerator.summarize, EngineConfig, without=("self",))
def summarize(
    documents: str | Iterable[str], model: str | Path = SUMMARIZE_MODEL, **options: Unpack[TextAndEngineKeywords]
) -> GeneratedText | list[GeneratedText]:
    """Summarize a document, or return a list for several. Options: see TextGenerator.summarize and Engine."""
    generator, own = _load(model, options)
    return generator.summarize(documents, **own)


@overload
def translate(  # type: ignore[overload-overlap]
    documents: str, model: str | Path = TRANSLATE_MODEL, **options: Unpack[TranslationAndEngineKeywords]
) -> GeneratedText: ...
@overload
def translate(
    documents: Iterable[str], model: str | Path = TRANSLATE_MODEL, **options: Unpack[TranslationAndEngineKeywords]
) -> list[GeneratedText]: ...
@shows_options(TextGenerator.translate, EngineConfig, without=("self",))
def translate(
    documents: str | Iterable[str], model: str | Path = TRANSLATE_MODEL, **options: Unpack[TranslationAndEngineKeywords]
) -> GeneratedText | list[GeneratedText]:
    """Translate a document, or return a list for several. Options: see TextGenerator.translate and Engine."""
    generator, own = _load(model, options)
    return generator.translate(documents, **own)


@overload
def generate(documents: str, model: str | Path, **options: Unpack[TextAndEngineKeywords]) -> GeneratedText: ...  # type: ignore[overload-overlap]
@overload
def generate(
    documents: Iterable[str], model: str | Path, **options: Unpack[TextAndEngineKeywords]
) -> list[GeneratedText]: ...
@shows_options(TextGenerator.generate, EngineConfig, without=("self",))
def generate(
    documents: str | Iterable[str], model: str | Path, **options: Unpack[TextAndEngineKeywords]
) -> GeneratedText | list[GeneratedText]:
    """Generate text from a document, or return a list for several. Options: see TextGenerator.generate and Engine."""
    generator, own = _load(model, options)
    return generator.generate(documents, **own)


@overload
def score(  # type: ignore[overload-overlap]
    documents: str, targets: str, model: str | Path, **options: Unpack[ScoringAndEngineKeywords]
) -> TextScore: ...
@overload
def score(
    documents: str | Iterable[str],
    targets: str | Iterable[str],
    model: str | Path,
    **options: Unpack[ScoringAndEngineKeywords],
) -> list[TextScore]: ...
@shows_options(TextGenerator.score, EngineConfig, without=("self",))
def score(
    documents: str | Iterable[str],
    targets: str | Iterable[str],
    model: str | Path,
    **options: Unpack[ScoringAndEngineKeywords],
) -> TextScore | list[TextScore]:
    """Return how likely a model finds a target text for a document. Options: see TextGenerator.score and Engine."""
    engine, own = split_options("there is no option", options, EngineConfig, ScoringOptions)
    return TextGenerator(model, **engine).score(documents, targets, **own)


@overload
def embed(  # type: ignore[overload-overlap]
    documents: str, model: str | Path, **options: Unpack[EmbeddingAndEngineKeywords]
) -> TextEmbedding: ...
@overload
def embed(
    documents: Iterable[str], model: str | Path, **options: Unpack[EmbeddingAndEngineKeywords]
) -> list[TextEmbedding]: ...
@shows_options(TextGenerator.encode, EngineConfig, without=("self",))
def embed(
    documents: str | Iterable[str], model: str | Path, **options: Unpack[EmbeddingAndEngineKeywords]
) -> TextEmbedding | list[TextEmbedding]:
    """Return a document's embedding, or a list for several. Options: see TextGenerator.encode and Engine."""
    engine, own = split_options("there is no option", options, EngineConfig, EmbeddingOptions)
    return TextGenerator(model, **engine).encode(documents, **own)


def _load(model: str | Path, options: Mapping[str, Any]) -> tuple[TextGenerator, dict[str, Any]]:
    """Return a TextGenerator with the engine's options, and the other options. Wrong names raise before loading."""
    engine, own, sampling = split_options(
        "there is no option", options, EngineConfig, TranslationOptions, SamplingParams, without=REFUSED
    )
    return TextGenerator(model, **engine), {**own, **sampling}
