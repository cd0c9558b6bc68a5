"""Log-mel spectrograms: Whisper's input features (Radford et al. 2022, section 2.2), of one window or of a recording.

Speech families call it on waveforms from `load_audio`. torch loads with the first spectrogram.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from transept.errors import MediaError
from transept.multimodal.audio import SAMPLE_RATE
from transept.multimodal.large_memory import empty
from transept.multimodal.waveforms import Waveform

if TYPE_CHECKING:
    import torch
    from torch import Tensor

N_FFT = 400  # samples; 25 ms at 16 kHz
HOP_LENGTH = 160  # samples; 10 ms at 16 kHz, so 100 frames a second
CHUNK_FRAMES = 6000  # of a long recording at a time; one minute, about 30 MB of spectrum
LOWEST = -10.0  # log of the smallest power, for silence
LOG_HZ, LOG_MEL, LOG_STEP = 1000.0, 15.0, np.log(6.4) / 27.0  # Slaney's scale: linear up to 1 kHz, which is 15 mels
DECADES = 8.0  # below the loudest value, at which quieter values are cut


def log_mel_spectrogram(waveform: Waveform, num_mels: int, num_samples: int) -> Tensor:
    """Compute the features of one window: the log10 of an 80 or 128 band mel spectrogram.

    waveform: [up to num_samples] float32 at 16 kHz; padded with zeros to num_samples, a multiple of HOP_LENGTH.
    Returns float32 [num_mels, num_samples // HOP_LENGTH], equal to transformers' WhisperFeatureExtractor: Hann windows
    of N_FFT samples centred on every hop, the edges reflected; floor 1e-10; all but the top 8 decades cut; (x + 4) / 4.
    Raises MediaError if the waveform is longer than num_samples.
    """
    import torch

    if len(waveform) > num_samples:
        raise MediaError(f"the waveform has {len(waveform)} samples, more than the {num_samples} of the spectrogram")
    # Only frames that overlap the signal are computed. The frames after half a window of zeros are constant, and so is
    # the reflection at the end of the computed part:
    #   samples  0 ........ len(waveform) .... num_computed ....... num_samples
    #            |----- signal ----|- >= N_FFT / 2 zeros -|-- constant frames --|
    num_computed = min(_signal_frames(waveform) * HOP_LENGTH, num_samples)
    padded = np.zeros(num_computed, dtype=np.float32)
    padded[: len(waveform)] = waveform
    log_mel = _log_mel(padded, num_mels, center=True)[:, :-1]
    floor = max(log_mel.max().item() - DECADES, LOWEST)
    features = log_mel.new_full((num_mels, num_samples // HOP_LENGTH), floor)
    torch.clamp(log_mel, min=floor, out=features[:, : log_mel.shape[1]])
    return features.add_(4.0).div_(4.0)


def recording_log_mel(waveform: Waveform, num_mels: int, device: torch.device | str = "cpu") -> Tensor:
    """Compute the features of a recording of any length, which is later cut into windows.

    waveform: float32 [num_samples] at 16 kHz, followed by silence. device: of the computation and the result.
    Returns float32 [num_mels, num_samples // HOP_LENGTH], equal to openai-whisper's ``log_mel_spectrogram`` for the
    recording with 30 s of padding, without the frames of the padding: the top 8 decades are relative to the whole
    recording. Each minute is computed separately, to need little memory besides the result.
    """
    import torch

    num_frames, num_computed = len(waveform) // HOP_LENGTH, _signal_frames(waveform)
    if torch.device(device).type == "cpu":
        features = torch.from_numpy(empty((num_mels, num_frames)))
    else:
        features = torch.empty(num_mels, num_frames, device=device)
    loudest = features.new_full((), LOWEST)  # never read on the host, which would wait for a GPU
    for first in range(0, num_computed, CHUNK_FRAMES):
        last = min(first + CHUNK_FRAMES, num_computed)
        log_mel = _log_mel(_samples_of_frames(waveform, first, last), num_mels, center=False, device=device)
        loudest = torch.maximum(loudest, log_mel.max())
        features[:, first:last] = log_mel[:, : max(0, num_frames - first)]
    return features.clamp_(min=loudest - DECADES).add_(4.0).div_(4.0)


@lru_cache(maxsize=8)
def mel_filters(num_mels: int, device: torch.device | str = "cpu", n_fft: int = N_FFT) -> Tensor:
    """Return triangular filters of equal area on Slaney's mel scale, 0 to 8 kHz: [num_mels, n_fft // 2 + 1] float32.

    n_fft: samples of a spectrum at 16 kHz.

    Bit-equal to transformers' ``mel_filter_bank``; ``librosa.filters.mel`` differs in the last bits.
    """
    import torch

    top = LOG_MEL + np.log(SAMPLE_RATE / 2 / LOG_HZ) / LOG_STEP
    mels = np.linspace(0.0, top, num_mels + 2)
    edges = np.where(mels < LOG_MEL, 200.0 * mels / 3.0, LOG_HZ * np.exp(LOG_STEP * (mels - LOG_MEL)))  # Hz
    distances = edges - np.linspace(0.0, SAMPLE_RATE / 2, n_fft // 2 + 1)[:, None]  # [bins, num_mels + 2]
    widths = np.diff(edges)
    triangles = np.minimum(-distances[:, :-2] / widths[:-1], distances[:, 2:] / widths[1:]).clip(min=0.0)
    filters = triangles * (2.0 / (edges[2:] - edges[:-2]))
    return torch.from_numpy(np.ascontiguousarray(filters.T, dtype=np.float32)).to(device)


def _signal_frames(waveform: Waveform) -> int:
    """Return the number of frames that overlap the signal; all later ones are silence."""
    return -(-(len(waveform) + N_FFT // 2) // HOP_LENGTH)


def _samples_of_frames(waveform: Waveform, first: int, last: int) -> Waveform:
    """Return the samples of frames first to last - 1: the signal, its reflection before it, silence after it."""
    half = N_FFT // 2
    begin, end = first * HOP_LENGTH - half, (last - 1) * HOP_LENGTH + half
    samples = np.zeros(end - begin, dtype=np.float32)
    signal = waveform[max(begin, 0) : end]
    samples[max(-begin, 0) :][: len(signal)] = signal
    if begin < 0:
        reflected = waveform[1 : half + 1][::-1]
        samples[half - len(reflected) : half] = reflected
    return samples


def _log_mel(samples: Waveform, num_mels: int, *, center: bool, device: torch.device | str = "cpu") -> Tensor:
    """Return log10 of the mel spectrogram, float32 [num_mels, frames]; center: with reflected edges."""
    import torch

    signal = torch.from_numpy(samples)
    if torch.device(device).type == "cuda":
        signal = signal.pin_memory()
    signal = signal.to(device, non_blocking=True)
    window = torch.hann_window(N_FFT, dtype=signal.dtype, device=device)
    # [bins, frames]
    spectrum = torch.stft(signal, N_FFT, HOP_LENGTH, window=window, center=center, return_complex=True)
    power = spectrum.real.square() + spectrum.imag.square()
    return (mel_filters(num_mels, device) @ power).clamp_(min=10.0**LOWEST).log10_()
