"""Edits: the corrections that a transcription's options ask for, in its events and in its transcript."""

from __future__ import annotations

import dataclasses
from typing import Any

from transept.speech.glossary import corrected
from transept.speech.options import TRANSLATES_TO, TranscriptionOptions
from transept.speech.redaction import NAMES, redacted
from transept.speech.segments import Found, Segment
from transept.speech.speech_model import SpeechModel
from transept.speech.transcript import Transcript, TranscriptionInfo


class Edits:
    """The ``merge`` of a recording's job: corrects and redacts the segments in its events.

    Names are the exception: a plugin may take long to find them, and would hold up the engine. Events then have no
    segments, and `of`, which runs beside the engine, finds the names of the whole transcript.
    """

    def __init__(self, model: SpeechModel, options: TranscriptionOptions) -> None:
        self.options = options
        self.find_names = model.name_finder if NAMES in options.redact else None
        translated = model.language_code(options.target_language) or TRANSLATES_TO
        self.language = translated if options.task == "translate" else ""  # of the text; "" until it is detected

    def __call__(self, _: int, event: Any) -> list[Any]:
        """Return the events that replace an event of the job."""
        if isinstance(event, TranscriptionInfo):
            self.language = self.language or event.language
        elif isinstance(event, Found):
            segments = () if self.find_names else [self._edited(segment) for segment in event.segments]
            event = dataclasses.replace(event, segments=segments)
        return [event]

    def of(self, transcript: Transcript) -> Transcript:
        """Return the edited transcript. Raises PluginError if the plugin that finds names fails."""
        return transcript.with_segments([self._edited(segment) for segment in transcript.segments])

    def _edited(self, segment: Segment) -> Segment:
        segment = corrected(segment, self.options.glossary)
        if not self.options.redact:
            return segment
        return redacted(segment, self.options.redact, self.find_names, self.language)
