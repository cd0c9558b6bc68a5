"""VadOptions: options of voice activity detection, which `spans` applies. Imports no NumPy, like all options."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Annotated

from transept.options import Option, declares_options, refusal, take_options

RECORDING = "the way through the recording"
recording = partial(Option, group=RECORDING)


@declares_options("VadOptions has no")
@dataclass(frozen=True)
class VadOptions:
    """Options of voice activity detection, under faster-whisper's names.

    Raises ParameterError for unknown options and values out of range.
    """

    threshold: Annotated[float, recording("lowest probability that counts as speech", metavar="P", gt=0.0, lt=1.0)] = (
        0.5
    )
    neg_threshold: Annotated[
        float | None,
        recording(
            "probability under which speech ends",
            "At least 0.01, and not above threshold.",
            metavar="P",
            default="0.15 less",
            gt=0.0,
            lt=1.0,
        ),
    ] = None
    min_speech_duration_ms: Annotated[float, recording("drop shorter speech", metavar="MS", ge=0)] = 0
    max_speech_duration_s: Annotated[
        float,
        recording(
            "cut longer speech",
            "It is cut at its quietest points. Batched mode never goes beyond the model's window.",
            metavar="S",
            default="never; batched: the window",
            ge=1.0,
            le=inf,
        ),
    ] = inf
    min_silence_duration_ms: Annotated[
        float | None, recording("keep shorter pauses", metavar="MS", default="2000; batched: 64", ge=0)
    ] = None
    speech_pad_ms: Annotated[
        float,
        recording(
            "silence to keep on both sides of speech", "The sides share a short pause equally.", metavar="MS", ge=0
        ),
    ] = 400

    def __post_init__(self) -> None:
        take_options(self)
        if self.neg_threshold is not None and self.neg_threshold > self.threshold:
            message = f"{{neg_threshold}} ({self.neg_threshold}) must not be above {{threshold}} ({self.threshold})"
            raise refusal(self, message)
