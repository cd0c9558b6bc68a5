"""Transcript: what a transcription returns."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Segment:
    """One stretch of the recording. start, end: seconds from its beginning."""

    start: float
    end: float
    text: str
    token_ids: list[int]


@dataclass(frozen=True)
class Transcript:
    """A whole recording.

    text: all of it, without leading or trailing blanks. language: code, such as ``"en"``.
    duration: seconds of audio. segments: in order of time; one a window of the model.
    """

    text: str
    language: str
    duration: float
    segments: list[Segment]

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts and lists, ready for JSON."""
        return dataclasses.asdict(self)
