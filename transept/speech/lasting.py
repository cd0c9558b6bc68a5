"""Wrap the job of a recording so that all words in its events and its transcript have a duration.

`transept.speech.transcriber` wraps the jobs of `transept.speech.conversation`. `transept.compat` does not, because
openai-whisper and faster-whisper return some words with a duration of zero.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator
from typing import Any

from transept.core.jobs.job import Gather, Job
from transept.speech.durations import lasting
from transept.speech.events import Found
from transept.speech.transcript import Transcript


def with_lasting_words(job: Job) -> Generator[Any, Any, Transcript]:
    """A job that runs the given one and makes its segments `lasting`."""
    (transcript,) = yield Gather([job], merge=_lasting_event)
    return lasting_transcript(transcript)


def lasting_transcript(transcript: Transcript) -> Transcript:
    """Return the transcript with `lasting` segments."""
    return dataclasses.replace(transcript, segments=[lasting(segment) for segment in transcript.segments])


def _lasting_event(_: int, event: Any) -> list[Any]:
    if isinstance(event, Found):
        event = dataclasses.replace(event, segments=[lasting(segment) for segment in event.segments])
    return [event]
