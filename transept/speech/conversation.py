"""Transcription of recordings with a speaker for each segment: the channel, or the speaker that a diarizer finds.

    each:     load ─▶ channels side by side (`recording`) ─▶ interleaved in order of time
    diarize:  load ─▶ turns ─▶ [voices] ─▶ `recording`, with words ─▶ segments cut where the speaker changes

`transept.speech.transcriber` runs these jobs. Without speakers they are those of `recording`. The log warns of speech
that no segment covers.
"""

from __future__ import annotations

import dataclasses
import logging
import math
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from transept.core.jobs.job import Gather, Offload
from transept.core.request.limits import Limits
from transept.errors import MediaError
from transept.multimodal.audio import audio_name
from transept.multimodal.channels import EACH, channel_names
from transept.multimodal.waveforms import NO_SAMPLES
from transept.registry.diarizers import Turn
from transept.speech import recording
from transept.speech.levelling import load_recording
from transept.speech.options import SEQUENTIAL, TranscriptionOptions
from transept.speech.recording import AudioInput, with_tracks
from transept.speech.segments import Found, Opened, Segment
from transept.speech.speech_model import SpeechModel
from transept.speech.timing.turns import Turns
from transept.speech.transcript import Transcript, TranscriptionInfo
from transept.speech.voices.heard import HeardVoice, HeardVoices, voices_of
from transept.speech.voices.naming import distinct_names, free_name, names_of

if TYPE_CHECKING:
    from transept.multimodal.waveforms import Waveform

logger = logging.getLogger(__name__)


def transcribe(
    model: SpeechModel, audio: AudioInput, limits: Limits, options: TranscriptionOptions
) -> Generator[Any, Any, Transcript]:
    """A job: one recording, as in `recording.transcribe`, with the speakers that the options ask for.

    Raises the same errors; MediaError if each channel should be a speaker, but the recording has only one channel, or
    all are identical; PluginError for a diarizer that fails.
    """
    if options.channel == EACH and not recording.has_no_samples(audio):
        transcript = yield from _each_channel(model, audio, limits, options)
    elif options.diarize:
        transcript = yield from _diarized(model, audio, limits, options)
    else:
        transcript = yield from recording.transcribe(model, audio, limits, options)
    if transcript.missed_speech:
        missed = ", ".join(f"{begin:.1f} to {end:.1f} s" for begin, end in transcript.missed_speech)
        hint = ""
        if model.detects and not options.multilingual:
            hint = "; multilingual=True (--multilingual) decodes such speech again"
        elif options.mode == SEQUENTIAL:
            hint = '; mode="auto" (--mode auto) decodes such speech again'
        logger.warning("%s: no segment covers the speech at %s%s", audio_name(audio), missed, hint)
    return transcript


def _each_channel(
    model: SpeechModel, audio: AudioInput, limits: Limits, options: TranscriptionOptions
) -> Generator[Any, Any, Transcript]:
    rate = model.spec.sample_rate
    loaded = yield Offload(partial(load_recording, limits, audio, rate, options))
    waveforms, warnings, other_tracks = deque(loaded.waveforms), loaded.warnings, loaded.other_tracks
    del loaded  # it would keep the waveforms in memory
    if waveforms[0].any() and all(np.array_equal(waveforms[0], other) for other in islice(waveforms, 1, None)):
        message = "its channels are identical: leave {channel='each'} out"
        raise MediaError(message, param="channel", value=EACH)
    yield Opened(len(waveforms[0]) / rate)
    names = channel_names(len(waveforms))
    interleaving = Interleaving([*options.speaker_names[: len(names)], *names[len(options.speaker_names) :]], options)
    _warn_of_names(audio, options, len(names), "channel")
    of_one = options.without_speakers()
    jobs = [_next_waveform(model, waveforms, of_one, warnings) for _ in waveforms]
    transcripts = yield Gather(jobs, merge=interleaving)
    segments = interleaving.segments(transcripts)
    missed = sorted(stretch for transcript in transcripts for stretch in transcript.missed_speech)
    reason = with_tracks(interleaving.reason(transcripts), other_tracks)
    return Transcript.of(interleaving.info(), recording.text_of(model, segments), segments, missed, reason)


def _next_waveform(
    model: SpeechModel, waveforms: deque[Waveform], options: TranscriptionOptions, warnings: Sequence[str]
) -> Generator[Any, Any, Transcript]:
    """A job: the next waveform, which is removed from the queue so that its job frees it. Ends with a ChannelEnded."""
    transcript = yield from recording.transcribe_waveform(model, waveforms.popleft(), options, warnings)
    yield ChannelEnded()
    return transcript


def _diarized(
    model: SpeechModel, audio: AudioInput, limits: Limits, options: TranscriptionOptions
) -> Generator[Any, Any, Transcript]:
    rate = model.spec.sample_rate
    if recording.has_no_samples(audio):
        waveforms, speakers, warnings, other_tracks = deque([NO_SAMPLES]), Speakers([], []), [], []
    else:
        loaded = yield Offload(partial(load_recording, limits, audio, rate, options))
        waveforms, warnings, other_tracks = deque(loaded.waveforms), loaded.warnings, loaded.other_tracks
        del loaded  # it would keep the waveform in memory
        speakers = yield Offload(partial(_speakers, model, waveforms[0], options), slow=True)
    if options.same_speakers:
        yield HeardVoices(speakers.voices)
    attribution = _Attribution(model, Turns(speakers.turns), options)
    words = options.word_timestamps or bool(model.alignment_heads)
    timed = dataclasses.replace(options.without_speakers(), word_timestamps=words)
    (transcript,) = yield Gather([_next_waveform(model, waveforms, timed, warnings)], merge=attribution)
    reason = with_tracks(transcript.reason, other_tracks)
    segments = list(attribution.attributed(transcript.segments, count()))
    _warn_of_names(audio, options, len(attribution.names), "speaker")
    return dataclasses.replace(transcript, segments=segments, options=options, reason=reason)


def _warn_of_names(audio: AudioInput, options: TranscriptionOptions, number: int, noun: str) -> None:
    """Warn of names without a speaker. number: of the speakers, which are channels if the noun says so."""
    if unused := options.speaker_names[number:]:
        has = f"{number} {noun}{'' if number == 1 else 's'}"
        logger.warning("%s: it has %s, so no segment is of %s", audio_name(audio), has, ", ".join(unused))


class Speakers(NamedTuple):
    """The turns of a recording, and the voices of its speakers if they are compared with others."""

    turns: list[Turn]
    voices: list[HeardVoice]


def _speakers(model: SpeechModel, waveform: Waveform, options: TranscriptionOptions) -> Speakers:
    """Return who speaks when, named after the known voices. Raises PluginError if a plugin fails.

    With same_speakers, the diarizer's names stay: the module `same_speakers` replaces them later.
    """
    rate, known = model.spec.sample_rate, options.voices
    turns = model.diarizer(waveform, rate, *options.bounds)
    if known is None and not options.same_speakers:
        return Speakers(turns, [])
    voices = voices_of(waveform, rate, turns, model.voice_embedder)
    if known is None or options.same_speakers:
        return Speakers(turns, voices)
    found = names_of(voices, known, model.voice_embedder.model.threshold)
    names = distinct_names(found, known.names)
    return Speakers([turn._replace(speaker=names[turn.speaker]) for turn in turns], voices)


class _Attribution:
    """Adds speakers to the segments in the events of a recording's job and in its transcript."""

    def __init__(self, model: SpeechModel, turns: Turns, options: TranscriptionOptions) -> None:
        self.model, self.turns, self.options = model, turns, options
        self.numbers = count()
        self.names: dict[str, str] = {}  # speaker -> its name from speaker_names, in the order of first segments

    def __call__(self, _: int, event: Any) -> list[Any]:
        """Return the events that replace an event of the job."""
        if isinstance(event, TranscriptionInfo):
            return [dataclasses.replace(event, options=self.options)]
        if isinstance(event, Found):
            return [dataclasses.replace(event, segments=list(self.attributed(event.segments, self.numbers)))]
        return [] if isinstance(event, ChannelEnded) else [event]

    def attributed(self, segments: Sequence[Segment], numbers: Iterator[int]) -> Iterator[Segment]:
        """Yield the segments with speakers, cut where the speaker changes, and numbered."""
        for segment in segments:
            for part in self.turns.cut(segment, self.model.tokenizer.decode):
                words = part.words if self.options.word_timestamps else None
                yield dataclasses.replace(part, id=next(numbers), words=words, speaker=self._name(part.speaker))

    def _name(self, speaker: str | None) -> str | None:
        """Return the given name of a speaker, by the order in which the speakers' first segments come."""
        if speaker is None or not self.options.speaker_names:
            return speaker
        if speaker not in self.names:
            given, number = self.options.speaker_names, len(self.names)
            taken = {*given, *self.names.values()}
            own = free_name("speaker", taken) if speaker in taken else speaker
            self.names[speaker] = given[number] if number < len(given) else own
        return self.names[speaker]


@dataclass(frozen=True)
class ChannelEnded:
    """An event: the job of a channel has ended."""


class Interleaving:
    """Merges the events of the channels' jobs into the events of one recording.

    A segment is passed on once no channel can have an earlier one, so streams have the order of the transcript.
    names: of the channels, in their order. options: of the whole transcription.
    """

    def __init__(self, names: Sequence[str], options: TranscriptionOptions) -> None:
        self.names = names
        self.options = options
        self.infos: dict[int, TranscriptionInfo] = {}
        self.reached = [0.0 for _ in names]  # seconds; no later segment of that channel begins before it
        self.waiting: list[deque[Segment]] = [deque() for _ in names]  # for segments of other channels
        self.numbers = count()

    def __call__(self, channel: int, event: Any) -> list[Any]:
        """Return the events that replace an event of a channel: one TranscriptionInfo, then Founds."""
        if isinstance(event, Opened):
            return []  # the recording's own came first
        if isinstance(event, TranscriptionInfo):
            self.infos[channel] = event
            if len(self.infos) < len(self.names):
                return []
            return [self.info(), *self._found()]
        if isinstance(event, Found):
            self.waiting[channel] += event.segments
            self.reached[channel] = max(self.reached[channel], event.progress_seconds)
        elif isinstance(event, ChannelEnded):
            self.reached[channel] = math.inf
        else:
            return [event]
        return self._found() if len(self.infos) == len(self.names) else []

    def info(self) -> TranscriptionInfo:
        """Return the recording's info, with the most certain language of its channels and their longest speech."""
        infos = [self.infos[channel] for channel in range(len(self.names))]
        surest = max(infos, key=lambda info: info.language_probability or 0.0)
        longest = max(info.duration_after_vad for info in infos)
        return dataclasses.replace(surest, duration_after_vad=longest, options=self.options)

    def reason(self, transcripts: Sequence[Transcript]) -> str:
        """Return why the channels are empty: one sentence if they agree, else one for each channel with its name."""
        reasons = [transcript.reason or "" for transcript in transcripts]
        if len(set(reasons)) == 1:
            return reasons[0]
        return "; ".join(f"{name}: {reason}" for name, reason in zip(self.names, reasons, strict=True))

    def segments(self, transcripts: Sequence[Transcript]) -> list[Segment]:
        """Return all segments, in order of time. transcripts: of the channels, in their order."""
        named = (
            self._named(channel, segment)
            for channel, transcript in enumerate(transcripts)
            for segment in transcript.segments
        )
        in_order = sorted(named, key=lambda segment: segment.start)  # those with equal starts by channel
        return [dataclasses.replace(segment, id=index) for index, segment in enumerate(in_order)]

    def _found(self) -> list[Found]:
        """Return the segments that are certain now, and the progress of all channels."""
        certain = []
        while any(self.waiting):
            starts = [queue[0].start if queue else math.inf for queue in self.waiting]
            first = min(starts)
            channel = starts.index(first)
            behind = [(self.reached[other], other) for other, queue in enumerate(self.waiting) if not queue]
            if min(behind, default=(math.inf, channel)) < (first, channel):  # it may have an earlier one
                break
            segment = self._named(channel, self.waiting[channel].popleft())
            certain.append(dataclasses.replace(segment, id=next(self.numbers)))
        return [Found(certain, min(*self.reached, self.infos[0].duration))]

    def _named(self, channel: int, segment: Segment) -> Segment:
        """Return a segment with its channel as speaker, and with its language if the channels' languages differ."""
        differ = len({info.language for info in self.infos.values()}) > 1
        language = self.infos[channel].language if differ and segment.language is None else segment.language
        return dataclasses.replace(segment, speaker=self.names[channel], language=language)
