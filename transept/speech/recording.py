"""The steps from a recording's audio to its transcript, top-down.

    sequential   load ─▶ [speech only] ─▶ features ─▶ language ─▶ window after window ──┐
    auto          ├────▶ passages ─▶ their features ─▶ language ─▶ passages side by side ─┼─▶ segments ─▶ transcript
    batched       └────▶ windows of speech ──────────▶ language ─▶ windows side by side ──┘

    a window: [its language] ─▶ prompt ─▶ decode, with fallback ─▶ segments ─▶ [words] ─▶ the recording's times

`transept.speech.transcriber` runs these jobs (`transept.core.jobs`). Each family's SpeechModel provides its control
tokens, languages and timestamps.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from transept.core.jobs.job import Offload
from transept.core.request.limits import Limits
from transept.errors import ParameterError
from transept.multimodal.audio import AudioInput as AudioInput
from transept.multimodal.sounds import SILENT_PEAK
from transept.multimodal.waveforms import NO_SAMPLES, has_sound, is_array
from transept.speech.algorithms import batched, sequential
from transept.speech.algorithms.language import recording_language
from transept.speech.algorithms.passages import decode_passages, spoken_passages
from transept.speech.algorithms.second_hearing import Heard
from transept.speech.algorithms.silence import SpokenWindow, num_kept, speech_only, spoken_windows
from transept.speech.algorithms.source import Source
from transept.speech.levelling import load_recording
from transept.speech.option_checks import unread_hotwords
from transept.speech.options import AUTO, BATCHED, SEQUENTIAL, TranscriptionOptions
from transept.speech.segments import Opened, Segment
from transept.speech.speech_model import SpeechModel
from transept.speech.timing.timeline import Timeline
from transept.speech.transcript import Transcript, TranscriptionInfo
from transept.speech.vad.spans import SAMPLE_RATE

if TYPE_CHECKING:
    from transept.multimodal.waveforms import Waveform

# The audio for language detection, the number of samples to decode, and the job that decodes them in that language.
Prepared: TypeAlias = tuple[Source, int, Callable[[Source], Generator[Any, Any, Heard]]]
Prepare: TypeAlias = Callable[[SpeechModel, "Waveform", TranscriptionOptions], Generator[Any, Any, Prepared]]


def transcribe(
    model: SpeechModel,
    audio: AudioInput,
    limits: Limits,
    options: TranscriptionOptions,
    prepare: Prepare | None = None,
) -> Generator[Any, Any, Transcript]:
    """A job: one recording. Its events are one Opened, one TranscriptionInfo, then a Found for each window.

    prepare: see `transcribe_waveform`. Raises MediaError for audio that cannot be read or is beyond the limits,
    ParameterError for a sample rate at which batched mode cannot find silence.
    """
    if has_no_samples(audio):
        return (yield from transcribe_waveform(model, NO_SAMPLES, options, prepare=prepare))
    rate = model.spec.sample_rate
    loaded = yield Offload(partial(load_recording, limits, audio, rate, options))
    # Passed without a local name, which would keep the waveform in memory.
    transcript = yield from transcribe_waveform(model, loaded.waveforms.pop(), options, loaded.warnings, prepare)
    return dataclasses.replace(transcript, reason=with_tracks(transcript.reason, loaded.other_tracks))


def transcribe_waveform(
    model: SpeechModel,
    waveform: Waveform,
    options: TranscriptionOptions,
    warnings: Sequence[str] = (),
    prepare: Prepare | None = None,
) -> Generator[Any, Any, Transcript]:
    """A job: a recording that has been read; see `transcribe`.

    waveform: float32 [num_samples], at the model's rate. warnings: see TranscriptionInfo. prepare: makes the job that
    prepares the audio for decoding; None: the mode's job.
    """
    rate = model.spec.sample_rate
    duration = len(waveform) / rate
    yield Opened(duration)
    is_silent = not (yield Offload(partial(has_sound, waveform)))
    if options.suppress_numerals or options.suppress_regex is not None:
        yield Offload(partial(model.tokenizer.suppressed_tokens, options))  # looks through all tokens, once
    prepare = prepare or PREPARE[_mode(model, duration, options)]
    source, num_samples, decode = yield from prepare(model, waveform, options)
    del waveform  # `decode` has its own reference, if needed
    language = yield from recording_language(source)
    ranked = dict(sorted(language.probabilities.items(), key=lambda each: -each[1]))
    kept = num_samples / rate
    warnings = [*warnings, *filter(None, [unread_hotwords(model, options)])]
    info = TranscriptionInfo(language.code, language.probability, ranked, duration, kept, options, warnings)
    yield info
    heard = yield from decode(dataclasses.replace(source, language=language.code))
    reason = _why_empty(info, heard.num_dropped, is_silent=is_silent)
    return Transcript.of(info, text_of(model, heard.segments), heard.segments, heard.missed_speech, reason)


def _mode(model: SpeechModel, duration: float, options: TranscriptionOptions) -> str:
    """Return the requested mode; for auto, the mode that suits the model and the recording.

    Voice activity detection needs 16 kHz. A family without timestamps cannot say where a window's text ends, so batched
    mode cuts its windows in pauses, unless the recording is one window.
    """
    if options.mode != AUTO:
        return options.mode
    if model.spec.sample_rate != SAMPLE_RATE:
        return SEQUENTIAL
    if model.tokenizer.control.first_timestamp is not None and not options.without_timestamps:
        return AUTO
    return BATCHED if duration * model.fps > model.chunk_frames(options) else SEQUENTIAL


def _prepare_auto(
    model: SpeechModel, waveform: Waveform, options: TranscriptionOptions
) -> Generator[Any, Any, Prepared]:
    parts = yield Offload(partial(spoken_passages, model, waveform, options))
    features = yield Offload(partial(model.features, parts[0].sound() if parts else NO_SAMPLES))
    return Source(model, options, features), num_kept(parts), partial(decode_passages, passages=parts)


def prepare_batched(
    model: SpeechModel,
    waveform: Waveform,
    options: TranscriptionOptions,
    find_windows: Callable[[SpeechModel, Waveform, TranscriptionOptions], list[SpokenWindow]] = spoken_windows,
) -> Generator[Any, Any, Prepared]:
    """A job: prepare the windows of batched mode.

    Raises ParameterError for a family whose sample rate is not 16 kHz.
    """
    import torch

    if model.spec.sample_rate != SAMPLE_RATE:
        raise ParameterError(
            f"voice activity is found at {SAMPLE_RATE} Hz, and this model takes {model.spec.sample_rate} Hz; "
            "leave {batched} False",
            param="batched",
            value=True,
        )
    parts = yield Offload(partial(find_windows, model, waveform, options))
    chunk = model.chunk_frames(options)  # the language is detected from full-length windows
    heard = [model.window_features(part.sound()) for part in parts[: options.language_detection_segments]]
    full = [torch.nn.functional.pad(features, (0, chunk - features.shape[1])) for features in heard]
    features = torch.cat(full, dim=1) if full else model.features(NO_SAMPLES)
    return Source(model, options, features), num_kept(parts), partial(batched.decode_windows, windows=parts)


def _prepare_sequential(
    model: SpeechModel, waveform: Waveform, options: TranscriptionOptions
) -> Generator[Any, Any, Prepared]:
    timeline = Timeline([], model.spec.sample_rate)
    if options.vad:
        waveform, timeline = yield Offload(partial(speech_only, waveform, timeline.rate, options))
        options = dataclasses.replace(options, clip_timestamps=())  # only those stretches are left
    options = dataclasses.replace(options, refine_word_times=False)
    source = Source(model, options, (yield Offload(partial(model.features, waveform))), waveform)
    return source, len(waveform), partial(sequential.transcribe, timeline=timeline)


PREPARE: dict[str, Prepare] = {AUTO: _prepare_auto, BATCHED: prepare_batched, SEQUENTIAL: _prepare_sequential}


def text_of(model: SpeechModel, segments: Sequence[Segment]) -> str:
    """Return the text of all segments, without leading or trailing blanks."""
    return model.tokenizer.decode([token for segment in segments for token in segment.tokens]).strip()


def has_no_samples(audio: AudioInput) -> bool:
    """True if audio is an empty waveform, which has an empty transcript; a file without samples is an error."""
    waveform = audio[0] if isinstance(audio, tuple) and len(audio) == 2 else audio if is_array(audio) else None
    return 0 in getattr(waveform, "shape", ()) or (isinstance(waveform, list) and not waveform)


def _why_empty(info: TranscriptionInfo, num_dropped: int, *, is_silent: bool) -> str:
    """Return why a transcript is empty, as one sentence without a full stop: the text alone does not show it.

    num_dropped: windows whose text a threshold dropped.
    """
    options = info.options
    if not info.duration:
        return "the recording has no samples"
    if is_silent:
        decibels = round(20 * np.log10(SILENT_PEAK))
        return f"the recording is silent: nothing in it is louder than {decibels} dB of full scale"
    if options.clip_timestamps and not any(
        end > begin for begin, end in options.clips(round(info.duration * 1000), 1000)
    ):
        return "clip_timestamps select nothing of the recording"
    if not info.duration_after_vad:
        threshold = options.vad_options.threshold
        return f"voice activity detection found no speech, at a threshold of {threshold:g}"
    if num_dropped:
        windows = "1 window" if num_dropped == 1 else f"{num_dropped} windows"
        names = ["no_speech_threshold"]
        names += [] if options.hallucination_silence_threshold is None else ["hallucination_silence_threshold"]
        return f"{' and '.join(names)} dropped the text of {windows}"
    return "the model found no words in the recording"


def with_tracks(reason: str | None, others: Sequence[str]) -> str | None:
    """Return the reason with the names of the recording's other audio tracks, one of which may have the speech."""
    if reason is None or not others:
        return reason
    what = "another audio track" if len(others) == 1 else "other audio tracks"
    return f"{reason}; the recording has {what}, which audio_track selects: {', '.join(others)}"
