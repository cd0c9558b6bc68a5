"""Transcribers with the behaviour of other libraries, where it differs from Transept's own."""

from __future__ import annotations

from functools import partial

from transept.core.jobs.job import Job
from transept.errors import ParameterError
from transept.multimodal.channels import EACH
from transept.multimodal.waveforms import Waveform
from transept.speech import conversation, recording
from transept.speech.algorithms.silence import SpokenWindow
from transept.speech.options import BATCHED, TranscriptionOptions
from transept.speech.recording import AudioInput
from transept.speech.speech_model import SpeechModel
from transept.speech.transcriber import Transcriber
from transept.speech.vad.spans import SAMPLE_RATE, Span


class CompatTranscriber(Transcriber):
    """A Transcriber whose words may have a duration of zero, as in openai-whisper and faster-whisper."""

    def _recording(self, audio: AudioInput, options: TranscriptionOptions) -> Job:
        return conversation.transcribe(self.model, audio, self.engine.config.limits, options)


class ClipTranscriber(CompatTranscriber):
    """Decodes clip_timestamps without voice activity detection: one window for each clip, several for a long one.

    Without clip_timestamps the recording is the only clip; then it must not be longer than a window. Transcripts with
    speakers still use voice activity detection.
    """

    def _recording(self, audio: AudioInput, options: TranscriptionOptions) -> Job:
        if options.mode != BATCHED or options.diarize or options.channel == EACH:
            return super()._recording(audio, options)
        prepare = partial(recording.prepare_batched, find_windows=_clip_windows)
        return recording.transcribe(self.model, audio, self.engine.config.limits, options, prepare)


def _clip_windows(model: SpeechModel, waveform: Waveform, options: TranscriptionOptions) -> list[SpokenWindow]:
    """Return one window for each clip, or several for a clip that is longer than a window."""
    longest = model.chunk_frames(options) * SAMPLE_RATE // model.fps  # samples
    if len(waveform) > longest and not options.clip_timestamps:
        raise ParameterError(
            "{vad_filter=} leaves out voice activity detection, which cuts a recording into windows; leave it on, or "
            "give {clip_timestamps}",
            param="vad_filter",
            value=False,
            others={"vad_filter": False, "clip_timestamps": ()},
        )
    starts = (
        (start, end) for begin, end in options.clips(len(waveform), SAMPLE_RATE) for start in range(begin, end, longest)
    )
    spans = [Span(start, min(start + longest, end)) for start, end in starts]
    return [
        SpokenWindow(waveform, (span,), (span,), None if number else options.prefix)
        for number, span in enumerate(spans)
    ]
