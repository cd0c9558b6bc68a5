"""Events and results of the jobs of recordings, as `Transcriber` returns them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator
from contextlib import closing
from typing import Any

from transept.errors import TranseptError
from transept.speech.segments import Found, Segment
from transept.speech.transcript import Transcript, TranscriptionInfo
from transept.speech.word_breaks import lasting


def reported(
    events: Generator[tuple[int, Any], None, None],
    on_info: Callable[[int, TranscriptionInfo], None] | None,
    on_segment: Callable[[int, Segment], None] | None,
) -> Generator[tuple[int, Transcript | TranseptError], None, None]:
    """Pass the events of recordings to the callbacks, and yield their results."""
    with closing(events):
        for index, event in events:
            if isinstance(event, TranscriptionInfo) and on_info is not None:
                on_info(index, event)
            elif isinstance(event, Found) and on_segment is not None:
                for segment in event.segments:
                    on_segment(index, segment)
            elif isinstance(event, Transcript | TranseptError):
                yield index, event


def lasting_transcript(transcript: Transcript) -> Transcript:
    """Return the transcript with a duration for every word and segment."""
    return dataclasses.replace(transcript, segments=[lasting(segment) for segment in transcript.segments])


def lasting_event(_: int, event: Any) -> list[Any]:
    """Return an event of a job, for `Gather`, with a duration for every word and segment."""
    if isinstance(event, Found):
        event = dataclasses.replace(event, segments=[lasting(segment) for segment in event.segments])
    return [event]


def in_order(
    results: Generator[tuple[int, Transcript | TranseptError], None, None],
) -> Generator[Transcript | TranseptError, None, None]:
    """Yield results in the order of their recordings; later recordings that are done early wait."""
    early: dict[int, Transcript | TranseptError] = {}
    turn = 0
    with closing(results):
        for index, result in results:
            early[index] = result
            while turn in early:
                yield early.pop(turn)
                turn += 1
