"""read_text and caption: VisionReader's tasks with a model that is loaded for one call."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

from transept.core.config import EngineConfig
from transept.core.request.sampling_params import SamplingParams
from transept.core.request.single_text import REFUSED_FOR_ONE
from transept.option_names import shows_options
from transept.options import split_options
from transept.vision.image_text import ImageText
from transept.vision.options import CAPTION_MODEL, READ_MODEL, ReadingOptions
from transept.vision.reader import VisionReader

if TYPE_CHECKING:
    from transept.vision.option_types import ReadingAndEngineKeywords

CAPTION = "caption"  # the task, in every family that captions images


@overload
def read_text(
    images: str | bytes | os.PathLike[str], model: str | Path = READ_MODEL, **options: Unpack[ReadingAndEngineKeywords]
) -> ImageText: ...
@overload
def read_text(
    images: list[Any] | tuple[Any, ...] | Iterator[Any],
    model: str | Path = READ_MODEL,
    **options: Unpack[ReadingAndEngineKeywords],
) -> list[ImageText]: ...
@overload
def read_text(images: Any, model: str | Path = READ_MODEL, **options: Unpack[ReadingAndEngineKeywords]) -> Any: ...
@shows_options(VisionReader.read, EngineConfig, without=("self",))
def read_text(images: Any, model: str | Path = READ_MODEL, **options: Unpack[ReadingAndEngineKeywords]) -> Any:
    """Read the text in an image, or return a list for several. Options: see VisionReader.read and Engine.

    A wrong name of an option raises before the model loads.
    """
    return _read(images, model, options)


@overload
def caption(
    images: str | bytes | os.PathLike[str],
    model: str | Path = CAPTION_MODEL,
    **options: Unpack[ReadingAndEngineKeywords],
) -> ImageText: ...
@overload
def caption(
    images: list[Any] | tuple[Any, ...] | Iterator[Any],
    model: str | Path = CAPTION_MODEL,
    **options: Unpack[ReadingAndEngineKeywords],
) -> list[ImageText]: ...
@overload
def caption(images: Any, model: str | Path = CAPTION_MODEL, **options: Unpack[ReadingAndEngineKeywords]) -> Any: ...
@shows_options(VisionReader.read, EngineConfig, without=("self",))
def caption(images: Any, model: str | Path = CAPTION_MODEL, **options: Unpack[ReadingAndEngineKeywords]) -> Any:
    """Describe an image, or return a list for several. Runs the model's task "caption", unless `task` names another.

    Options: see VisionReader.read and Engine; a wrong name raises before the model loads. Raises
    ParameterError for a model without that task.
    """
    return _read(images, model, {"task": CAPTION, **options})


def _read(images: Any, model: str | Path, options: Mapping[str, Any]) -> Any:
    engine, own, sampling = split_options(
        "there is no option", options, EngineConfig, ReadingOptions, SamplingParams, without=REFUSED_FOR_ONE
    )
    return VisionReader(model, **engine).read(images, **own, **sampling)
