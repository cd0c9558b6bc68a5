"""What the encoder takes: Kaldi's log-mel filter banks, normalised over the recording that a request carries.

The numbers are those of transformers' Speech2TextFeatureExtractor where it computes without torchaudio.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from transept.authoring import CheckpointView
from transept.multimodal import MappedInput
from transept.multimodal.audio import load_audio
from transept.multimodal.audio_limits import check_window
from transept.multimodal.filter_banks import FRAMES_PER_SECOND, filter_banks
from transept_speech2text import SAMPLE_RATE


def num_bins(config: Any) -> int:
    """Numbers of a frame: its mel filters."""
    return int(config.input_feat_per_channel * config.input_channels)


def num_tokens(num_frames: int, config: Any) -> int:
    """Encoder tokens of so many frames: every convolution halves them."""
    for kernel in config.conv_kernel_sizes:
        num_frames = (num_frames + 2 * (kernel // 2) - kernel) // 2 + 1
    return num_frames


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
    check_window(len(frames) / FRAMES_PER_SECOND, view.config.max_source_positions / FRAMES_PER_SECOND)
    if not len(frames):  # less than a whole one
        frames = np.zeros((1, frames.shape[1]), np.float32)
    settings = view.preprocessor_config or view.processor_config.get("feature_extractor", {})
    features = torch.from_numpy(normalized(frames, settings))
    return MappedInput(kwargs={"input_features": features}, num_tokens=num_tokens(len(features), view.config))


def map_audio(data: Any, view: CheckpointView) -> MappedInput:
    """data: what `load_audio` takes, such as a path. Otherwise as `map_features`."""
    return map_features(recording_features(load_audio(data, SAMPLE_RATE), view, "cpu"), view)
