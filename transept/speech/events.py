"""What a transcription's job tells its reader on the way to its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transept.speech.segments import Segment


@dataclass(frozen=True)
class Opened:
    """The recording could be read. duration: seconds."""

    duration: float


@dataclass(frozen=True)
class Found:
    """What is certain. segments: new ones, in order of time.

    progress_seconds: how far the job has come in all; no segment that begins before is still to come.
    """

    segments: Sequence[Segment] = ()
    progress_seconds: float = 0.0
