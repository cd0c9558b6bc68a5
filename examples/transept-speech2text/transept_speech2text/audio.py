"""What the encoder takes: Kaldi's log-mel filter banks, normalised over the recording that a request carries.

The numbers are those of transformers' Speech2TextFeatureExtractor where it computes without torchaudio.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from transept.authoring import CheckpointView
from transept.multimodal import MappedInput, MediaError
from transept.multimodal.audio import load_audio
from transept_speech2text import FRAMES_PER_SECOND, SAMPLE_RATE

FRAME, HOP = 400, SAMPLE_RATE // FRAMES_PER_SECOND  # samples: 25 ms every 10 ms
N_FFT = 512  # samples
CHUNK_FRAMES = 3000  # that are computed at a time: 30 s, about 40 MB
FULL_SCALE = 2.0**15  # Kaldi's samples are integers of 16 bits
PREEMPHASIS = 0.97
LOWEST_HZ = 20.0
LEAST_ENERGY = 1.192092955078125e-07


def num_bins(config: Any) -> int:
    """Numbers of a frame: its mel filters."""
    return int(config.input_feat_per_channel * config.input_channels)


def num_tokens(num_frames: int, config: Any) -> int:
    """Encoder tokens of so many frames: every convolution halves them."""
    for kernel in config.conv_kernel_sizes:
        num_frames = (num_frames + 2 * (kernel // 2) - kernel) // 2 + 1
    return num_frames


def mel(hertz: Any) -> Any:
    """Kaldi's mel scale."""
    return 1127.0 * np.log(1.0 + hertz / 700.0)


@lru_cache(maxsize=4)
def mel_filters(num_mels: int) -> np.ndarray:
    """Filters that are triangles in mel, from LOWEST_HZ to half of the sample rate: float64 [num_mels, bins]."""
    edges = np.linspace(mel(LOWEST_HZ), mel(SAMPLE_RATE / 2), num_mels + 2)
    slopes = edges[:, None] - mel(SAMPLE_RATE / N_FFT * np.arange(N_FFT // 2 + 1))  # [num_mels + 2, bins]
    width = np.diff(edges)[:, None]
    return np.maximum(0.0, np.minimum(-slopes[:-2] / width[:-1], slopes[2:] / width[1:]))


def filter_banks(waveform: np.ndarray, num_mels: int) -> np.ndarray:
    """The logarithm of the energy that mel filters let through, as Kaldi computes it, without dither.

    waveform: float32 [samples] at SAMPLE_RATE. Returns float32 [num_mels, frames]; only whole frames count, so of less
    than FRAME samples there are none.
    """
    num_frames = max(0, 1 + (len(waveform) - FRAME) // HOP)
    banks = np.empty((num_mels, num_frames), np.float32)
    window = np.hanning(FRAME) ** 0.85  # Povey's
    for first in range(0, num_frames, CHUNK_FRAMES):
        last = min(first + CHUNK_FRAMES, num_frames)
        samples = (waveform[first * HOP : (last - 1) * HOP + FRAME] * np.float32(FULL_SCALE)).astype(np.float64)
        frames = np.lib.stride_tricks.sliding_window_view(samples, FRAME)[::HOP]
        frames = frames - frames.mean(axis=1, keepdims=True)
        emphasized = frames - PREEMPHASIS * np.roll(frames, 1, axis=1)
        emphasized[:, 0] = frames[:, 0] * (1 - PREEMPHASIS)
        spectrum = np.fft.rfft(emphasized * window, N_FFT).astype(np.complex64)
        energy = mel_filters(num_mels) @ (np.abs(spectrum, dtype=np.float64) ** 2).T
        banks[:, first:last] = np.log(np.maximum(LEAST_ENERGY, energy))
    return banks


def normalized(frames: np.ndarray, settings: Any) -> np.ndarray:
    """Cepstral mean and variance normalisation over all frames, as preprocessor_config.json asks for it.

    frames: float32 [frames, bins]. Returns the same shape. A bin that never changes is not divided.
    """
    if not settings.get("do_ceptral_normalize", True):  # spelled so
        return frames
    if settings.get("normalize_means", True):
        frames = frames - frames.mean(axis=0)
    if settings.get("normalize_vars", True):
        deviation = frames.std(axis=0)
        frames = frames / np.where(deviation > 0, deviation, 1)
    return frames


def recording_features(waveform: np.ndarray, view: CheckpointView, device: str) -> Tensor:
    """waveform: float32 [samples]. Returns the filter banks of all of it, [bins, frames], computed on the host."""
    return torch.from_numpy(filter_banks(waveform, num_bins(view.config)))


def map_features(data: Any, view: CheckpointView) -> MappedInput:
    """data: float32 [bins, frames], a slice of `recording_features`. It is normalised by itself.

    Returns input_features, float32 [frames, bins]. Raises MediaError for more frames than max_source_positions.
    """
    # In this order of memory, in which transformers sums over frames.
    frames = np.ascontiguousarray(torch.as_tensor(data).cpu().numpy().T)
    longest = view.config.max_source_positions
    if len(frames) > longest:
        raise MediaError(
            f"the audio is {len(frames) / FRAMES_PER_SECOND:.2f} s long, and one request carries at most "
            f"{longest / FRAMES_PER_SECOND:g} s. Use transept.transcribe, which takes audio of any length, or split it"
        )
    if not len(frames):  # less than a whole one
        frames = np.zeros((1, frames.shape[1]), np.float32)
    settings = view.preprocessor_config or view.processor_config.get("feature_extractor", {})
    features = torch.from_numpy(normalized(frames, settings))
    return MappedInput(kwargs={"input_features": features}, num_tokens=num_tokens(len(features), view.config))


def map_audio(data: Any, view: CheckpointView) -> MappedInput:
    """data: what `load_audio` takes, such as a path. Otherwise as `map_features`."""
    return map_features(recording_features(load_audio(data, SAMPLE_RATE), view, "cpu"), view)
