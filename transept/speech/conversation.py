"""Transcription of recordings in which speakers are told apart, by their channels or by a diarizer.

    each:     load ─▶ channel by channel, beside each other (`recording`) ─▶ interleaved in order of time
    diarize:  load ─▶ turns of speakers ─▶ `recording`, with words ─▶ segments cut where the speaker changes

`transept.speech.transcriber` runs these jobs; without speakers to tell apart they are those of `recording`.
The log is told of speech that no segment covers.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from functools import partial
from itertools import count, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from transept.core.jobs.job import Gather, Offload
from transept.core.request.limits import Limits
from transept.errors import MediaError
from transept.multimodal.audio import audio_name
from transept.multimodal.channels import EACH, channel_names
from transept.multimodal.waveforms import NO_SAMPLES
from transept.speech import recording
from transept.speech.emptiness import with_tracks
from transept.speech.events import Found, Opened
from transept.speech.interleaving import ChannelEnded, Interleaving
from transept.speech.options import SEQUENTIAL, TranscriptionOptions
from transept.speech.recording import AudioInput
from transept.speech.segments import Segment
from transept.speech.speech_model import SpeechModel
from transept.speech.timing.turns import Turns
from transept.speech.transcript import Transcript, TranscriptionInfo

if TYPE_CHECKING:
    from transept.multimodal.waveforms import Waveform

logger = logging.getLogger(__name__)


def transcribe(
    model: SpeechModel, audio: AudioInput, limits: Limits, options: TranscriptionOptions
) -> Generator[Any, Any, Transcript]:
    """A job: one recording, as `recording.transcribe`, with the speakers that the options ask for.

    Raises what that raises; MediaError where each channel is to be a speaker and there is one alone, or the same sound
    on all; PluginError for a diarizer that fails.
    """
    if options.channel == EACH and not recording.has_no_samples(audio):
        transcript = yield from _each_channel(model, audio, limits, options)
    elif options.diarize:
        transcript = yield from _diarized(model, audio, limits, options)
    else:
        transcript = yield from recording.transcribe(model, audio, limits, options)
    if transcript.missed_speech:
        _warn(audio, transcript, model)
    return transcript


def _warn(audio: AudioInput, transcript: Transcript, model: SpeechModel) -> None:
    """Tell the log of speech that no segment covers, and of the option, if any is left, that hears it again."""
    missed = ", ".join(f"{begin:.1f} to {end:.1f} s" for begin, end in transcript.missed_speech)
    options, hint = transcript.options, ""
    if model.detects and not options.multilingual:
        hint = "; multilingual=True (--multilingual) hears such speech again"
    elif options.mode == SEQUENTIAL:
        hint = '; mode="auto" (--mode auto) decodes such speech again'
    logger.warning("%s: somebody speaks and no segment says what: %s%s", audio_name(audio), missed, hint)


def _each_channel(
    model: SpeechModel, audio: AudioInput, limits: Limits, options: TranscriptionOptions
) -> Generator[Any, Any, Transcript]:
    """A job: a recording whose channels are its speakers."""
    rate = model.spec.sample_rate
    loaded = yield Offload(partial(limits.load_recording, audio, rate, EACH, options.audio_track))
    waveforms, warnings, other_tracks = deque(loaded.waveforms), loaded.warnings, loaded.other_tracks
    del loaded  # it would keep the waveforms in memory
    if waveforms[0].any() and all(np.array_equal(waveforms[0], other) for other in islice(waveforms, 1, None)):
        message = "its channels are all the same sound: leave {channel='each'} out"
        raise MediaError(message, param="channel", value=EACH)
    yield Opened(len(waveforms[0]) / rate)
    interleaving = Interleaving(channel_names(len(waveforms)), options)
    of_one = dataclasses.replace(options, channel="mix")
    transcripts = yield Gather([_channel(model, waveforms, of_one, warnings) for _ in waveforms], merge=interleaving)
    segments = interleaving.segments(transcripts)
    missed = sorted(stretch for transcript in transcripts for stretch in transcript.missed_speech)
    reason = with_tracks(interleaving.reason(transcripts), other_tracks)
    return Transcript.of(interleaving.info(), recording.text_of(model, segments), segments, missed, reason)


def _channel(
    model: SpeechModel, waveforms: deque[Waveform], options: TranscriptionOptions, warnings: Sequence[str]
) -> Generator[Any, Any, Transcript]:
    """A job: the next of the waveforms, whose last event is ChannelEnded."""
    transcript = yield from _next_waveform(model, waveforms, options, warnings)
    yield ChannelEnded()
    return transcript


def _next_waveform(
    model: SpeechModel, waveforms: deque[Waveform], options: TranscriptionOptions, warnings: Sequence[str]
) -> Generator[Any, Any, Transcript]:
    """A job: the next of the waveforms, which it takes, so that each goes when its job has ended."""
    return (yield from recording.transcribe_waveform(model, waveforms.popleft(), options, warnings))


def _diarized(
    model: SpeechModel, audio: AudioInput, limits: Limits, options: TranscriptionOptions
) -> Generator[Any, Any, Transcript]:
    """A job: a recording whose speakers a diarizer tells apart."""
    rate = model.spec.sample_rate
    if recording.has_no_samples(audio):
        waveforms, turns, warnings, other_tracks = deque([NO_SAMPLES]), [], [], []
    else:
        loaded = yield Offload(partial(limits.load_recording, audio, rate, options.channel, options.audio_track))
        waveforms, warnings, other_tracks = deque(loaded.waveforms), loaded.warnings, loaded.other_tracks
        del loaded  # it would keep the waveform in memory
        turns = yield Offload(partial(model.diarizer, waveforms[0], rate))
    attribution = _Attribution(model, Turns(turns), options)
    words = options.word_timestamps or bool(model.alignment_heads)
    timed = dataclasses.replace(options, channel="mix", diarize=False, word_timestamps=words)
    (transcript,) = yield Gather([_next_waveform(model, waveforms, timed, warnings)], merge=attribution)
    reason = with_tracks(transcript.reason, other_tracks)
    return attribution.of_transcript(dataclasses.replace(transcript, reason=reason))


class _Attribution:
    """Gives segments their speakers, in the events of a recording's job and in its transcript."""

    def __init__(self, model: SpeechModel, turns: Turns, options: TranscriptionOptions) -> None:
        self.model, self.turns, self.options = model, turns, options
        self.numbers = count()

    def __call__(self, _: int, event: Any) -> list[Any]:
        """The event in place of one of the job."""
        if isinstance(event, TranscriptionInfo):
            return [dataclasses.replace(event, options=self.options)]
        if isinstance(event, Found):
            return [dataclasses.replace(event, segments=list(self._attributed(event.segments, self.numbers)))]
        return [event]

    def of_transcript(self, transcript: Transcript) -> Transcript:
        """The same transcript, of the same text, with speakers."""
        segments = list(self._attributed(transcript.segments, count()))
        return dataclasses.replace(transcript, segments=segments, options=self.options)

    def _attributed(self, segments: Sequence[Segment], numbers: Iterator[int]) -> Iterator[Segment]:
        for segment in segments:
            for part in self.turns.cut(segment, self.model.tokenizer.decode):
                words = part.words if self.options.word_timestamps else None
                yield dataclasses.replace(part, id=next(numbers), words=words)
