"""summarize, translate, generate: the tasks of TextGenerator with a model that is loaded for one call."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any, overload

from transept.core.config import EngineConfig
from transept.option_names import refuse_unknown, shows_options
from transept.text.generated_text import GeneratedText
from transept.text.generator import TextGenerator
from transept.text.job import LANGUAGES, OPTIONS


@overload
def summarize(documents: str, model: str | Path, **options: Any) -> GeneratedText: ...
@overload
def summarize(documents: Iterable[str], model: str | Path, **options: Any) -> list[GeneratedText]: ...
@shows_options(TextGenerator.summarize, EngineConfig, without=("self",))
def summarize(documents: str | Iterable[str], model: str | Path, **options: Any) -> GeneratedText | list[GeneratedText]:
    """Summarize one document, or several to a list. Options: those of TextGenerator.summarize and of Engine."""
    generator, options = _load(model, options)
    return generator.summarize(documents, **options)


@overload
def translate(documents: str, model: str | Path, **options: Any) -> GeneratedText: ...
@overload
def translate(documents: Iterable[str], model: str | Path, **options: Any) -> list[GeneratedText]: ...
@shows_options(TextGenerator.translate, EngineConfig, without=("self",))
def translate(documents: str | Iterable[str], model: str | Path, **options: Any) -> GeneratedText | list[GeneratedText]:
    """Translate one document, or several to a list. Options: those of TextGenerator.translate and of Engine."""
    generator, options = _load(model, options)
    return generator.translate(documents, **options)


@overload
def generate(documents: str, model: str | Path, **options: Any) -> GeneratedText: ...
@overload
def generate(documents: Iterable[str], model: str | Path, **options: Any) -> list[GeneratedText]: ...
@shows_options(TextGenerator.generate, EngineConfig, without=("self",))
def generate(documents: str | Iterable[str], model: str | Path, **options: Any) -> GeneratedText | list[GeneratedText]:
    """What a model writes for one document, or for several. Options: those of TextGenerator.generate and of Engine."""
    generator, options = _load(model, options)
    return generator.generate(documents, **options)


def _load(model: str | Path, options: dict[str, Any]) -> tuple[TextGenerator, dict[str, Any]]:
    """A generator made with the engine's options, and the others. A wrong name is refused before the model loads."""
    of_engine = {field.name for field in dataclasses.fields(EngineConfig)} - {"model"}
    of_task = {*OPTIONS, *LANGUAGES}
    refuse_unknown("there is no option", options, of_engine | of_task)
    generator = TextGenerator(model, **{name: value for name, value in options.items() if name in of_engine})
    return generator, {name: value for name, value in options.items() if name not in of_engine}
