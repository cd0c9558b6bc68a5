"""A Transcriber for the doors of other libraries, whose words have the times that those libraries give them."""

from __future__ import annotations

from transept.core.jobs import Job
from transept.speech import conversation
from transept.speech.options import TranscriptionOptions
from transept.speech.recording import AudioInput
from transept.speech.transcriber import Transcriber


class CompatTranscriber(Transcriber):
    """A Transcriber some of whose words may begin and end at once, as in openai-whisper and faster-whisper."""

    def _recording(self, audio: AudioInput, options: TranscriptionOptions) -> Job:
        return conversation.transcribe(self.model, audio, self.engine.config.limits, options)
