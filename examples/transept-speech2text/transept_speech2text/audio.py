"""Audio mappers: the encoder's input is Kaldi's log-mel filter banks, normalised over a request's recording.

They equal transformers' Speech2TextFeatureExtractor without torchaudio.
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
    """Return the mel filters of a frame."""
    return int(config.input_feat_per_channel * config.input_channels)


def num_tokens(num_frames: int, config: Any) -> int:
    """Return the number of encoder tokens of frames: every convolution halves them."""
    for kernel in config.conv_kernel_sizes:
        num_frames = (num_frames + 2 * (kernel // 2) - kernel) // 2 + 1
    return num_frames


def normalized(frames: np.ndarray, settings: Any) -> np.ndarray:
    """Normalise mean and variance over all frames, by the settings of preprocessor_config.json.

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
    """data: float32 [bins, frames], a slice of `recording_features`, which is normalised separately.

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
    """Map a recording. data: see `load_audio`, such as a path. Otherwise like `map_features`."""
    return map_features(recording_features(load_audio(data, SAMPLE_RATE), view, "cpu"), view)
