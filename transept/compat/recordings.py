"""A Transcriber for the interfaces of other libraries, with those libraries' word times."""

from __future__ import annotations

from transept.core.jobs.job import Job
from transept.speech import conversation
from transept.speech.options import TranscriptionOptions
from transept.speech.recording import AudioInput
from transept.speech.transcriber import Transcriber


class CompatTranscriber(Transcriber):
    """A Transcriber whose words may have a duration of zero, as in openai-whisper and faster-whisper."""

    def _recording(self, audio: AudioInput, options: TranscriptionOptions) -> Job:
        return conversation.transcribe(self.model, audio, self.engine.config.limits, options)
