"""The job of a recording whose words all have a length, in its events and in its transcript.

`transept.speech.transcriber` wraps the jobs of `transept.speech.conversation` in it. The doors of `transept.compat` do
not: openai-whisper and faster-whisper give some words no time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator
from typing import Any

from transept.core.jobs import Gather, Job
from transept.speech.durations import lasting
from transept.speech.events import Found
from transept.speech.transcript import Transcript


def with_lasting_words(job: Job) -> Generator[Any, Any, Transcript]:
    """A job: the given one, with `lasting` segments."""
    (transcript,) = yield Gather([job], merge=_lasting_event)
    return lasting_transcript(transcript)


def lasting_transcript(transcript: Transcript) -> Transcript:
    """The transcript with `lasting` segments."""
    return dataclasses.replace(transcript, segments=[lasting(segment) for segment in transcript.segments])


def _lasting_event(_: int, event: Any) -> list[Any]:
    if isinstance(event, Found):
        event = dataclasses.replace(event, segments=[lasting(segment) for segment in event.segments])
    return [event]
