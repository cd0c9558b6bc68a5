"""The encoder's input: a log-mel spectrogram with a frame every 10 ms."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from transept.authoring import CheckpointView
from transept.multimodal import MappedInput, MediaError
from transept.multimodal.audio import load_audio
from transept.multimodal.log_mel import recording_log_mel

from . import FRAMES_PER_SECOND, SAMPLE_RATE

STRIDE = 2  # of every convolution


def num_tokens(num_frames: int, config: Any) -> int:
    """Return the number of encoder tokens of a number of frames, which each convolution halves."""
    for kernel in config.conv_kernel_sizes:
        num_frames = (num_frames + 2 * (kernel // 2) - kernel) // STRIDE + 1
    return num_frames


def recording_features(waveform: np.ndarray, view: CheckpointView, device: str) -> Tensor:
    """Return the features of a recording, float32 [bins, frames]. waveform: float32 [samples], of any length."""
    return recording_log_mel(waveform, view.config.input_feat_per_channel, device)


def map_features(data: Any, view: CheckpointView) -> MappedInput:
    """Return the input of `encode` for one request: the frames, and their number of encoder tokens.

    data: float32 [bins, frames], of a recording or a window. Raises MediaError if it is too long.
    """
    features = torch.as_tensor(data).T
    longest = view.config.max_source_positions
    if len(features) > longest:
        raise MediaError(
            f"the audio is {len(features) / FRAMES_PER_SECOND:.2f} s long, and one request carries at most "
            f"{longest / FRAMES_PER_SECOND:g} s. Use transept.transcribe, which takes audio of any length, or split it"
        )
    if not len(features):  # less than a frame
        features = features.new_zeros(1, features.shape[1])
    return MappedInput({"input_features": features}, num_tokens=num_tokens(len(features), view.config))


def map_audio(data: Any, view: CheckpointView) -> MappedInput:
    """data: what `load_audio` takes, such as a path. Otherwise as `map_features`."""
    return map_features(recording_features(load_audio(data, SAMPLE_RATE), view, "cpu"), view)
