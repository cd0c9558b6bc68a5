"""openai-whisper's ``whisper.audio``: files to samples, and samples to the spectrogram of a window."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from transept.errors import MediaError
from transept.multimodal.audio import SAMPLE_RATE
from transept.multimodal.audio import load_audio as read_audio
from transept.multimodal.log_mel import HOP_LENGTH, N_FFT
from transept.multimodal.log_mel import log_mel_spectrogram as window_log_mel

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = ["CHUNK_LENGTH", "HOP_LENGTH", "N_FFT", "N_FRAMES", "N_SAMPLES", "SAMPLE_RATE"]
__all__ += ["load_audio", "log_mel_spectrogram", "pad_or_trim"]

CHUNK_LENGTH = 30  # seconds of a window
N_SAMPLES = CHUNK_LENGTH * SAMPLE_RATE
N_FRAMES = N_SAMPLES // HOP_LENGTH


def load_audio(file: str | Path, sr: int = SAMPLE_RATE) -> np.ndarray[Any, Any]:
    """Return a file's samples, [num_samples] float32 in [-1, 1], mono. sr: Hz. Raises MediaError."""
    return read_audio(file, sr)


def pad_or_trim(array: Any, length: int = N_SAMPLES, *, axis: int = -1) -> Any:
    """Cut an array or a tensor at `length` along an axis, or pad it with zeros."""
    import torch

    kept = array.take(range(length), axis) if isinstance(array, np.ndarray) and array.shape[axis] > length else array
    if isinstance(kept, torch.Tensor):
        kept = kept.narrow(axis, 0, min(length, kept.shape[axis]))
    missing = length - kept.shape[axis]
    if missing <= 0:
        return kept
    shape = list(kept.shape)
    shape[axis] = missing
    if isinstance(kept, torch.Tensor):
        return torch.cat([kept, kept.new_zeros(shape)], dim=axis)
    return np.concatenate([kept, np.zeros(shape, kept.dtype)], axis=axis)


def log_mel_spectrogram(
    audio: str | Path | np.ndarray[Any, Any] | Tensor,
    n_mels: int = 80,
    padding: int = 0,
    device: str | torch.device | None = None,
) -> Tensor:
    """Return the log-mel spectrogram of a file or of samples at 16 kHz: float32 [n_mels, num_samples // HOP_LENGTH].

    audio: a path, or samples [num_samples]. padding: number of zeros after them. device: None: the samples' device.
    Raises MediaError for a file that cannot be read, or samples of another shape.
    """
    import torch

    if isinstance(audio, str | os.PathLike):
        audio = load_audio(Path(audio))
    if isinstance(audio, torch.Tensor):
        device = audio.device if device is None else device
        audio = audio.detach().cpu().numpy()
    samples = np.asarray(audio, dtype=np.float32)
    if samples.ndim != 1 or not samples.size:
        raise MediaError(f"a spectrogram is made of samples [num_samples], not {list(samples.shape)}")
    return window_log_mel(samples, n_mels, len(samples) + padding).to("cpu" if device is None else device)
