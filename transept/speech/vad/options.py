"""VadOptions: what counts as speech. Read without NumPy, as all options are; `spans` finds speech by them."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Annotated

from transept.options import Option, declared, declares_options, refusal, take_options

RECORDING = "the way through the recording"


@declares_options("VadOptions has no")
@dataclass(frozen=True)
class VadOptions:
    """What counts as speech, under faster-whisper's names.

    Raises ParameterError for unknown options and values out of range.
    """

    threshold: Annotated[
        float, Option("probability from which sound is speech", group=RECORDING, metavar="P", gt=0.0, lt=1.0)
    ] = 0.5
    neg_threshold: Annotated[
        float | None,
        Option(
            "probability under which speech ends",
            "At least 0.01, and not above threshold.",
            group=RECORDING,
            metavar="P",
            default="0.15 less",
            gt=0.0,
            lt=1.0,
        ),
    ] = None
    min_speech_duration_ms: Annotated[float, Option("drop shorter speech", group=RECORDING, metavar="MS", ge=0)] = 0
    max_speech_duration_s: Annotated[
        float,
        Option(
            "cut longer speech",
            "It is cut at its quietest points. Batched mode never goes beyond the model's window.",
            group=RECORDING,
            metavar="S",
            default="never; batched: the window",
            ge=1.0,
            le=inf,
        ),
    ] = inf
    min_silence_duration_ms: Annotated[
        float | None,
        Option("keep shorter pauses", group=RECORDING, metavar="MS", default="2000; batched: 64", ge=0),
    ] = None
    speech_pad_ms: Annotated[
        float,
        Option(
            "silence to keep on both sides of speech",
            "Of a short pause, each side takes half.",
            group=RECORDING,
            metavar="MS",
            ge=0,
        ),
    ] = 400

    @classmethod
    def names(cls) -> list[str]:
        """The names of all options."""
        return [*declared(cls)]

    def __post_init__(self) -> None:
        take_options(self)
        if self.neg_threshold is not None and self.neg_threshold > self.threshold:
            message = f"{{neg_threshold}} ({self.neg_threshold}) must not be above {{threshold}} ({self.threshold})"
            raise refusal(self, message)
