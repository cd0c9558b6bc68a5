"""ReadingOptions: the options of models that read images, in addition to SamplingParams.

The name of a task is checked later, with the model. No torch here.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated

from transept.core.request.adapter_options import LORA
from transept.options import Option, declares_options, take_options

READ_MODEL = "microsoft/trocr-base-printed"  # default
CAPTION_MODEL = "florence-community/Florence-2-base"


@declares_options("read has no option")
@dataclass(frozen=True)
class ReadingOptions:
    """Options to read images.

    Raises ParameterError for an unknown option, and if the task is not a str.
    """

    task: Annotated[
        str | None,
        Option(
            "what to read, for a model with several tasks",
            "One of VisionReader.tasks. None: the first.",
            group="decoding",
            metavar="NAME",
            wanted="a task's name",
        ),
    ] = None

    lora: Annotated[str | None, dataclasses.replace(LORA, group="decoding")] = None

    def __post_init__(self) -> None:
        take_options(self)
