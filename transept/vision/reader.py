"""VisionReader: read the text in images. All images share the engine's batch.

The preparation of images, and tasks and their prompts, come from the family's plugin.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np

from transept.core.config import EngineConfig
from transept.core.engine import ClosesEngine, Engine
from transept.core.jobs.job import Job
from transept.core.request.sampling_params import SamplingParams
from transept.core.request.single_text import WITHOUT_RESULT
from transept.errors import (
    CapacityError,
    CheckpointError,
    MediaError,
    ParameterError,
    PluginFailedError,
    TranseptError,
    UnsupportedModelError,
)
from transept.option_names import shows_options
from transept.vision.image_text import ImageText
from transept.vision.job import ReadingJob, make_job, prepare, read_image, tasks
from transept.vision.options import ReadingOptions

if TYPE_CHECKING:
    from transept.core.option_types import EngineKeywords
    from transept.vision.option_types import ReadingKeywords

BLANK_PAGE = np.full((32, 32, 3), 255, np.uint8)


class VisionReader(ClosesEngine):
    """Keeps a model loaded that reads text in images.

    model, engine_options: as for Engine. Raises UnsupportedModelError for a model that does not read images,
    CheckpointError for one without a tokenizer.

    An image is a path, the bytes of a file, a file opened to read bytes, a PIL image, an array or a tensor; see
    `transept.multimodal.image.load_image`. Several are a list, a tuple or anything else that yields them. Options:

    task: one of `tasks`, for a model that has several; default: the first.
    num_beams, max_tokens and all other fields of SamplingParams. Fields that are not set default to the checkpoint's
    settings.

    Raises ParameterError for an invalid option before any image is opened. Every method may be called from several
    threads: they share the engine's batch, and each gets the same results as alone.
    """

    @shows_options(EngineConfig)
    def __init__(self, model: str | Path, **engine_options: Unpack[EngineKeywords]) -> None:
        self._take(Engine(model, **engine_options))

    @classmethod
    def from_engine(cls, engine: Engine) -> VisionReader:
        """Make a VisionReader over a loaded engine. Raises the constructor's errors."""
        reader = cls.__new__(cls)
        reader._take(engine)
        return reader

    def _take(self, engine: Engine) -> None:
        model, spec = engine.config.model, engine.spec
        if spec.vision is None:
            can = "its task is to transcribe speech" if spec.speech else "its task is to write text for text"
            if "image" in spec.input_mappers:
                can = "its plugin declares no VisionSpec, so call Engine.generate"
            message = f'"{model}" is a "{spec.name}" model, which reads no text in images; {can}'
            raise UnsupportedModelError(message, param="model", value=model)
        if engine.tokenizer is None:
            raise CheckpointError(f'"{model}" has no tokenizer; put its tokenizer.json beside the weights')
        self.engine = engine
        self.tasks = list(tasks(engine, spec.vision))
        with suppress(CapacityError, MediaError, PluginFailedError):  # of the number of beams, or of one image
            prepare(BLANK_PAGE, make_job(engine, {}))  # raises for wrong settings now, not with every image

    @overload
    def read(self, images: str | bytes | os.PathLike[str], **options: Unpack[ReadingKeywords]) -> ImageText: ...
    @overload
    def read(
        self, images: list[Any] | tuple[Any, ...] | Iterator[Any], **options: Unpack[ReadingKeywords]
    ) -> list[ImageText]: ...
    @overload
    def read(self, images: Any, **options: Unpack[ReadingKeywords]) -> Any: ...
    @shows_options(ReadingOptions, SamplingParams, without=WITHOUT_RESULT)
    def read(self, images: Any, **options: Unpack[ReadingKeywords]) -> Any:
        """Read one image, which gives an ImageText, or several, which give a list of them in their order.

        If one of several images fails, its ImageText has an `error`, and the others are not affected. A single image
        raises its error: MediaError if it is not an image, CapacityError, or RequestFailedError.
        options: see the class.
        """
        if are_several(images):
            return list(self.stream(images, **options))
        (result,) = self.stream([images], **options)
        if result.error is not None:
            raise result.error
        return result

    @shows_options(ReadingOptions, SamplingParams, without=WITHOUT_RESULT)
    def stream(self, images: Iterable[Any], **options: Unpack[ReadingKeywords]) -> Iterator[ImageText]:
        """Yield the ImageText of each image, in their order, each when it and all earlier ones are complete.

        images: read as the batch needs them. options: see the class. Raises ParameterError for a single image.
        """
        if not are_several(images):
            raise ParameterError(
                f"stream takes several images, and this is {type(images).__name__}: pass a list of them, or call read, "
                "which also takes one image",
                param="images",
                value=images,
            )
        return self._in_order(images, make_job(self.engine, options))

    @shows_options(ReadingOptions, SamplingParams, without=WITHOUT_RESULT)
    def job(self, image: Any, **options: Unpack[ReadingKeywords]) -> Job:
        """A job for `engine.runner` (docs/jobs.md) that reads one image, whose result is an ImageText.

        options: see the class. Raises ParameterError immediately for an invalid one.
        """
        return read_image(image, make_job(self.engine, options))

    def _in_order(self, images: Iterable[Any], job: ReadingJob) -> Generator[ImageText, None, None]:
        """Run jobs; twice as many as run at a time are started, so that the batch stays full."""
        kept: dict[int, ImageText] = {}  # results of later images
        turn = 0
        jobs = (read_image(image, job) for image in images)
        with closing(self.engine.runner.run(jobs, max_jobs=2 * self.engine.config.max_num_seqs)) as events:
            for index, result in events:
                kept[index] = ImageText.failed(result) if isinstance(result, TranseptError) else result
                while turn in kept:
                    yield kept.pop(turn)
                    turn += 1


def are_several(images: Any) -> bool:
    """True if this is not an image, but yields images. Raises ParameterError for a dict, which yields its keys."""
    if isinstance(images, Mapping):
        raise ParameterError(
            f"images came as {type(images).__name__}, whose keys are not images: pass a list of its images, such as "
            "list(images.values())",
            param="images",
            value=images,
        )
    if isinstance(images, str | bytes | bytearray | memoryview | os.PathLike) or hasattr(images, "read"):
        return False
    # Ask the type: the attribute __array_interface__ of a PIL image decodes it, and raises for a closed one.
    is_array = any(hasattr(type(images), name) for name in ("__array__", "__array_interface__"))
    return isinstance(images, Iterable) and not is_array
