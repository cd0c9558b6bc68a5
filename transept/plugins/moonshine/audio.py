"""Audio mappers: the encoder's input is the waveform. Its features are its samples, in one channel."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from transept.authoring import CheckpointView
from transept.multimodal import MappedInput
from transept.multimodal.audio import load_audio
from transept.multimodal.audio_limits import check_window
from transept.plugins.moonshine import (
    SAMPLE_RATE,
    STREAMING_FRAME,
    STREAMING_TOKEN,
    WINDOW_SECONDS,
    streaming_window_seconds,
)

CONVOLUTIONS = ((127, 64), (7, 3), (3, 2))  # kernel and stride of each; together 384 samples, 24 ms, a token
LONGEST = round(WINDOW_SECONDS * SAMPLE_RATE)  # samples


def num_tokens(num_samples: int) -> int:
    """Return the number of encoder tokens of samples; 0 for less than 895 samples, 56 ms."""
    for kernel, stride in CONVOLUTIONS:
        num_samples = max((num_samples - kernel) // stride + 1, 0)
    return num_samples


def recording_features(waveform: np.ndarray, view: CheckpointView, device: str) -> Tensor:
    """waveform: float32 [samples]. Returns [1, samples]."""
    return torch.from_numpy(waveform)[None].to(device)


def map_features(data: Any, view: CheckpointView) -> MappedInput:
    """data: float32 [1, samples], a slice of `recording_features`. Audio too short for a token is padded.

    Returns input_values, float32 [samples]. Raises MediaError for audio longer than WINDOW_SECONDS.
    """
    samples = torch.as_tensor(data)[0]
    check_window(len(samples) / SAMPLE_RATE, WINDOW_SECONDS)
    missing = 0
    while not num_tokens(len(samples) + missing):
        missing += CONVOLUTIONS[0][1]
    samples = torch.nn.functional.pad(samples, (0, missing))
    return MappedInput(kwargs={"input_values": samples}, num_tokens=num_tokens(len(samples)))


def map_audio(data: Any, view: CheckpointView) -> MappedInput:
    """Map a recording. data: see `load_audio`, such as a path. Otherwise like `map_features`."""
    return map_features(torch.from_numpy(load_audio(data, SAMPLE_RATE))[None], view)


def map_streaming_features(data: Any, view: CheckpointView) -> MappedInput:
    """data: float32 [1, samples], a slice of `recording_features`. Raises MediaError for more than one window.

    Returns input_values, float32 [samples].
    """
    samples = torch.as_tensor(data)[0]
    check_window(len(samples) / SAMPLE_RATE, streaming_window_seconds(view))
    if not len(samples):
        samples = torch.zeros(STREAMING_FRAME)
    return MappedInput(kwargs={"input_values": samples}, num_tokens=num_streaming_tokens(len(samples)))


def map_streaming_audio(data: Any, view: CheckpointView) -> MappedInput:
    """Map a recording. data: see `load_audio`, such as a path. Otherwise like `map_streaming_features`."""
    return map_streaming_features(torch.from_numpy(load_audio(data, SAMPLE_RATE))[None], view)


def num_streaming_tokens(num_samples: int) -> int:
    """Return the number of encoder tokens of samples for the streaming models."""
    return -(-num_samples // STREAMING_TOKEN)
