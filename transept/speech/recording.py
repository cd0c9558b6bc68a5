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
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

from transept.core.jobs.job import Offload
from transept.core.request.limits import Limits
from transept.multimodal.waveforms import NO_SAMPLES, is_array
from transept.speech.algorithms import batched, sequential
from transept.speech.algorithms.coverage import Heard
from transept.speech.algorithms.language import Language, recording_language
from transept.speech.algorithms.passages import decode_passages, spoken_passages
from transept.speech.algorithms.silence import SpokenWindow, num_kept, speech_only, spoken_windows
from transept.speech.algorithms.source import Source
from transept.speech.emptiness import has_sound, why_empty, with_tracks
from transept.speech.events import Opened
from transept.speech.options import AUTO, BATCHED, SEQUENTIAL, TranscriptionOptions
from transept.speech.segments import Segment
from transept.speech.speech_model import SpeechModel
from transept.speech.timing.timeline import Timeline
from transept.speech.transcript import Transcript, TranscriptionInfo
from transept.speech.vad.spans import SAMPLE_RATE

if TYPE_CHECKING:
    import numpy.typing as npt
    from torch import Tensor

    from transept.multimodal.waveforms import Waveform

# path, contents, open file, samples at 16 kHz (an array or a tensor), (waveform, rate)
AudioInput: TypeAlias = "str | Path | bytes | BinaryIO | npt.NDArray[Any] | Tensor | tuple[Any, int]"


def transcribe(
    model: SpeechModel, audio: AudioInput, limits: Limits, options: TranscriptionOptions
) -> Generator[Any, Any, Transcript]:
    """A job: one recording. Its events are one Opened, one TranscriptionInfo, then a Found for each window.

    Raises MediaError for audio that cannot be read or is beyond the limits, ParameterError for a sample rate
    at which batched mode cannot find silence.
    """
    if has_no_samples(audio):
        return (yield from transcribe_waveform(model, NO_SAMPLES, options))
    rate = model.spec.sample_rate
    loaded = yield Offload(partial(limits.load_recording, audio, rate, options.channel, options.audio_track))
    # Passed without a local name, which would keep the waveform in memory.
    transcript = yield from transcribe_waveform(model, loaded.waveforms.pop(), options, loaded.warnings)
    reason = with_tracks(transcript.reason, loaded.other_tracks)
    return dataclasses.replace(transcript, reason=reason)


def transcribe_waveform(
    model: SpeechModel, waveform: Waveform, options: TranscriptionOptions, warnings: Sequence[str] = ()
) -> Generator[Any, Any, Transcript]:
    """Transcribe a recording that has been read; see `transcribe`.

    waveform: float32 [num_samples], at the model's rate. warnings: see TranscriptionInfo.
    """
    rate = model.spec.sample_rate
    duration = len(waveform) / rate
    yield Opened(duration)
    sounds = yield Offload(partial(has_sound, waveform))
    if options.suppress_numerals or options.suppress_regex is not None:
        yield Offload(partial(model.tokenizer.suppressed_tokens, options))  # looks through all tokens, once
    source, num_samples, decode = yield from MODES[_mode(model, duration, options)](model, waveform, options)
    del waveform  # of which a mode keeps what it needs
    language = yield from recording_language(source)
    info = _info(language, duration, num_samples / rate, options, warnings)
    yield info
    heard = yield from decode(dataclasses.replace(source, language=language.code))
    kept = info.duration_after_vad
    why = why_empty(options, duration=duration, kept=kept, sounds=sounds, num_dropped=heard.num_dropped)
    return Transcript.of(info, text_of(model, heard.segments), heard.segments, heard.missed_speech, why)


# The sound that tells the language, the number of samples to decode, and the job that decodes them in that language.
Prepared: TypeAlias = tuple[Source, int, Callable[[Source], Generator[Any, Any, Heard]]]


def _auto(model: SpeechModel, waveform: Waveform, options: TranscriptionOptions) -> Generator[Any, Any, Prepared]:
    parts = yield Offload(partial(spoken_passages, model, waveform, options))
    features = yield Offload(partial(model.features, parts[0].sound() if parts else NO_SAMPLES))
    return Source(model, options, features), num_kept(parts), partial(decode_passages, passages=parts)


def _batched(model: SpeechModel, waveform: Waveform, options: TranscriptionOptions) -> Generator[Any, Any, Prepared]:
    parts = yield Offload(partial(spoken_windows, model, waveform, options))
    features = _features(model, parts[: options.language_detection_segments], options)
    return Source(model, options, features), num_kept(parts), partial(batched.decode_windows, windows=parts)


def _sequential(model: SpeechModel, waveform: Waveform, options: TranscriptionOptions) -> Generator[Any, Any, Prepared]:
    timeline = Timeline([], model.spec.sample_rate)
    if options.vad:
        waveform, timeline = yield Offload(partial(speech_only, waveform, timeline.rate, options))
        options = dataclasses.replace(options, clip_timestamps=())  # only those stretches are left
    source = Source(model, options, (yield Offload(partial(model.features, waveform))), waveform)
    return source, len(waveform), partial(sequential.transcribe, timeline=timeline)


MODES = {AUTO: _auto, BATCHED: _batched, SEQUENTIAL: _sequential}


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


def text_of(model: SpeechModel, segments: Sequence[Segment]) -> str:
    """Return the text of all segments, without leading or trailing blanks."""
    return model.tokenizer.decode([token for segment in segments for token in segment.tokens]).strip()


def _info(
    language: Language,
    duration: float,
    duration_after_vad: float,
    options: TranscriptionOptions,
    warnings: Sequence[str],
) -> TranscriptionInfo:
    ranked = dict(sorted(language.probabilities.items(), key=lambda each: -each[1]))
    detected = (language.code, language.probability, ranked)
    return TranscriptionInfo(*detected, duration, duration_after_vad, options, list(warnings))


def _features(model: SpeechModel, windows: Sequence[SpokenWindow], options: TranscriptionOptions) -> Tensor:
    """Return the features of windows, [channels, frames], each padded to a full window, one after the other."""
    chunk = model.chunk_frames(options)
    import torch

    if not windows:
        return model.features(NO_SAMPLES)
    each = [model.window_features(window.sound()) for window in windows]
    return torch.cat([torch.nn.functional.pad(one, (0, chunk - one.shape[1])) for one in each], dim=1)


def has_no_samples(audio: AudioInput) -> bool:
    """True if audio is an empty waveform, which has an empty transcript; a file without samples is an error."""
    waveform = audio[0] if isinstance(audio, tuple) and len(audio) == 2 else audio if is_array(audio) else None
    return 0 in getattr(waveform, "shape", ()) or (isinstance(waveform, list) and not waveform)
