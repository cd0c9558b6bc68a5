"""The reason why a transcript is empty. `transept.speech.recording` asks for it at the end.

A recording may have no speech, or a step may have left its speech out; the transcript alone does not show which.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from transept.multimodal.sounds import SILENT_PEAK
from transept.multimodal.waveforms import Waveform
from transept.speech.options import TranscriptionOptions

SEARCHED_SAMPLES = 1 << 20  # at a time; most recordings have sound in the first block


def has_sound(waveform: Waveform) -> bool:
    """True if any sample is above SILENT_PEAK. waveform: float32 [num_samples]."""
    pieces = (waveform[at : at + SEARCHED_SAMPLES] for at in range(0, len(waveform), SEARCHED_SAMPLES))
    return any(np.abs(piece).max() > SILENT_PEAK for piece in pieces)


def why_empty(options: TranscriptionOptions, *, duration: float, kept: float, sounds: bool, num_dropped: int) -> str:
    """Return the reason as one sentence, without a full stop.

    duration: seconds of the recording. kept: seconds of it that voice activity detection kept. sounds: see `has_sound`.
    num_dropped: windows whose text a threshold dropped.
    """
    if not duration:
        return "the recording has no samples"
    if not sounds:
        decibels = round(20 * np.log10(SILENT_PEAK))
        return f"the recording is silent: nothing in it is louder than {decibels} dB of full scale"
    if options.clip_timestamps and not any(end > begin for begin, end in options.clips(round(duration * 1000), 1000)):
        return "clip_timestamps select nothing of the recording"
    if not kept:
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
