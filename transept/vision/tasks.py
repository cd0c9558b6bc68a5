"""read_text and caption: what VisionReader does, with a model that is loaded for one call."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, overload

from transept.core.config import EngineConfig
from transept.option_names import refuse_unknown, shows_options
from transept.vision.image_text import ImageText
from transept.vision.job import OPTIONS
from transept.vision.reader import VisionReader

CAPTION = "caption"  # the task, in every family that captions images


@overload
def read_text(images: str | bytes | os.PathLike[str], model: str | Path, **options: Any) -> ImageText: ...
@overload
def read_text(
    images: list[Any] | tuple[Any, ...] | Iterator[Any], model: str | Path, **options: Any
) -> list[ImageText]: ...
@overload
def read_text(images: Any, model: str | Path, **options: Any) -> Any: ...
@shows_options(VisionReader.read, EngineConfig, without=("self",))
def read_text(images: Any, model: str | Path, **options: Any) -> Any:
    """Read the text in one image, or in several to a list. Options: those of VisionReader.read and of Engine.

    A wrong name of an option is refused before the model loads.
    """
    return _read(images, model, options)


@overload
def caption(images: str | bytes | os.PathLike[str], model: str | Path, **options: Any) -> ImageText: ...
@overload
def caption(
    images: list[Any] | tuple[Any, ...] | Iterator[Any], model: str | Path, **options: Any
) -> list[ImageText]: ...
@overload
def caption(images: Any, model: str | Path, **options: Any) -> Any: ...
@shows_options(VisionReader.read, EngineConfig, without=("self",))
def caption(images: Any, model: str | Path, **options: Any) -> Any:
    """Describe one image, or several to a list: the model's task "caption", unless `task` names another.

    Options: those of VisionReader.read and of Engine; a wrong name is refused before the model loads. Raises
    ParameterError for a model without that task.
    """
    return _read(images, model, {"task": CAPTION, **options})


def _read(images: Any, model: str | Path, options: dict[str, Any]) -> Any:
    of_engine = {field.name for field in dataclasses.fields(EngineConfig)} - {"model"}
    refuse_unknown("there is no option", options, of_engine | {*OPTIONS})
    reader = VisionReader(model, **{name: value for name, value in options.items() if name in of_engine})
    return reader.read(images, **{name: value for name, value in options.items() if name not in of_engine})
