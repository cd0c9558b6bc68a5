"""Whisper's input mapper: audio to the log-mel features of one window."""

from __future__ import annotations

from typing import Any

from transept.multimodal import MappedInput, MediaError
from transept.multimodal.audio import HOP_LENGTH, SAMPLE_RATE, load_audio, log_mel_spectrogram

FRAMES_PER_TOKEN = 2  # the stride of the encoder's second convolution; 20 ms a token


def map_audio(data: Any, config: Any) -> MappedInput:
    """One window of audio, padded with silence to the length that the encoder was trained on.

    data: what `load_audio` takes. config: a WhisperConfig.
    Returns input_features [num_mel_bins, 2 x max_source_positions] float32, and max_source_positions tokens.
    Raises MediaError when the audio cannot be read, and when it is longer than the window: it is never cut.
    """
    num_tokens = config.max_source_positions
    window = num_tokens * FRAMES_PER_TOKEN * HOP_LENGTH  # samples; 30 s in every released model
    waveform = load_audio(data, SAMPLE_RATE)
    if len(waveform) > window:
        raise MediaError(
            f"the audio is {len(waveform) / SAMPLE_RATE:.2f} s long, and one request carries at most "
            f"{window / SAMPLE_RATE:.2f} s. Use transept.transcribe, which takes audio of any length, or split it"
        )
    features = log_mel_spectrogram(waveform, config.num_mel_bins, window)
    return MappedInput(kwargs={"input_features": features}, num_tokens=num_tokens)
