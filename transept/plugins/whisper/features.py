"""Whisper's input features: the log-mel spectrogram of a whole recording, and of a request's window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transept.authoring import CheckpointView
from transept.multimodal import MappedInput, MediaError
from transept.multimodal.audio import SAMPLE_RATE, load_audio
from transept.multimodal.audio_limits import AudioTooLongError
from transept.multimodal.log_mel import HOP_LENGTH, log_mel_spectrogram, recording_log_mel
from transept.multimodal.waveforms import Waveform

if TYPE_CHECKING:
    from torch import Tensor

MEASURED_SECONDS = 600  # longest audio whose length is measured for an error; longer audio is not decoded completely
FRAMES_PER_TOKEN = 2  # the stride of the encoder's second convolution; 20 ms a token


def recording_features(waveform: Waveform, view: CheckpointView, device: str) -> Tensor:
    """Return features of a recording of any length: float32 [num_mel_bins, frames of 10 ms]."""
    return recording_log_mel(waveform, view.config.num_mel_bins, device)


def map_features(data: Any, view: CheckpointView) -> MappedInput:
    """Map a slice of `recording_features`, padded with zeros to the window that the encoder was trained on.

    data: float32 [num_mel_bins, up to 2 x max_source_positions].
    Raises MediaError for features of another shape or kind.
    """
    return _padded(data, view, view.config.max_source_positions * FRAMES_PER_TOKEN)


def map_short_features(data: Any, view: CheckpointView) -> MappedInput:
    """Map features as `map_features`, but pad them only to whole tokens: the encoder reads only the given frames.

    data: float32 [num_mel_bins, 1 to 2 x max_source_positions].
    """
    frames = data.shape[-1] if getattr(data, "ndim", 0) else 0
    return _padded(data, view, max(1, -(-frames // FRAMES_PER_TOKEN)) * FRAMES_PER_TOKEN)


def _padded(data: Any, view: CheckpointView, frames: int) -> MappedInput:
    import torch

    config = view.config
    window = config.max_source_positions * FRAMES_PER_TOKEN  # frames
    if isinstance(data, torch.Tensor) and not (
        data.is_floating_point() and data.layout is torch.strided and not data.is_meta
    ):
        raise MediaError(
            f"audio_features must be a dense tensor of floats, not {data.dtype} with {data.layout} on {data.device}"
        )
    if not isinstance(data, torch.Tensor) or data.ndim != 2 or data.shape[0] != config.num_mel_bins:
        shape = list(getattr(data, "shape", ())) or type(data).__name__
        raise MediaError(f"audio_features must be a tensor [{config.num_mel_bins}, frames], not {shape}")
    if data.shape[1] > window:
        raise MediaError(f"audio_features hold {data.shape[1]} frames, and one request carries at most {window}")
    features = torch.nn.functional.pad(data, (0, frames - data.shape[1]))
    return MappedInput(kwargs={"input_features": features}, num_tokens=frames // FRAMES_PER_TOKEN)


def map_audio(data: Any, view: CheckpointView) -> MappedInput:
    """Map one window of audio, padded with silence to the window that the encoder was trained on.

    data: see `load_audio`.
    Returns input_features [num_mel_bins, 2 x max_source_positions] float32, and max_source_positions tokens.
    Raises MediaError if the audio cannot be read, or is longer than the window.
    """
    num_tokens = view.config.max_source_positions
    window = num_tokens * FRAMES_PER_TOKEN * HOP_LENGTH  # samples; 30 s in every released model
    try:
        waveform = load_audio(data, SAMPLE_RATE, max_audio_seconds=MEASURED_SECONDS)
        length = f"{len(waveform) / SAMPLE_RATE:.2f} s long"
    except AudioTooLongError:
        length = f"more than {MEASURED_SECONDS} s long"
        waveform = None
    if waveform is None or len(waveform) > window:
        raise MediaError(
            f"the audio is {length}, and one request carries at most {window / SAMPLE_RATE:.2f} s. Use "
            "transept.transcribe, which takes audio of any length, or split it"
        )
    features = log_mel_spectrogram(waveform, view.config.num_mel_bins, window)
    return MappedInput(kwargs={"input_features": features}, num_tokens=num_tokens)
