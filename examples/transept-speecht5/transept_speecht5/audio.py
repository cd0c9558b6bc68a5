"""Audio mappers: the encoder's input is the waveform. Its features are its samples, in one channel."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from transept.authoring import CheckpointView
from transept.multimodal import MappedInput
from transept.multimodal.audio import load_audio
from transept.multimodal.audio_limits import check_window
from transept_speecht5 import SAMPLE_RATE, WINDOW_SECONDS

LONGEST = round(WINDOW_SECONDS * SAMPLE_RATE)  # samples


def num_tokens(num_samples: int, config: Any) -> int:
    """Return the number of encoder tokens of samples: in released models one for 20 ms, and 0 for less than 25 ms."""
    for kernel, stride in zip(config.conv_kernel, config.conv_stride, strict=True):
        num_samples = max((num_samples - kernel) // stride + 1, 0)
    return num_samples


def shortest(config: Any) -> int:
    """Return the number of samples that the convolutions need for one token."""
    num_samples = 1
    for kernel, stride in reversed([*zip(config.conv_kernel, config.conv_stride, strict=True)]):
        num_samples = (num_samples - 1) * stride + kernel
    return num_samples


def recording_features(waveform: np.ndarray, view: CheckpointView, device: str) -> Tensor:
    """waveform: float32 [samples]. Returns [1, samples]."""
    return torch.from_numpy(waveform)[None].to(device)


def map_features(data: Any, view: CheckpointView) -> MappedInput:
    """data: float32 [1, samples], a slice of `recording_features`. Audio too short for a token is padded.

    Returns input_values, float32 [samples], equal to transformers' SpeechT5FeatureExtractor: with do_normalize in
    the checkpoint's settings, with a mean of 0 and a variance of 1. Raises MediaError for more than WINDOW_SECONDS.
    """
    samples = torch.as_tensor(data)[0]
    check_window(len(samples) / SAMPLE_RATE, WINDOW_SECONDS)
    settings = view.preprocessor_config or view.processor_config.get("feature_extractor", {})
    if settings.get("do_normalize", False):
        host = samples.cpu().numpy()
        samples = torch.from_numpy((host - host.mean()) / np.sqrt(host.var() + 1e-7)).to(samples.device)
    samples = F.pad(samples, (0, max(shortest(view.config) - len(samples), 0)))
    return MappedInput(kwargs={"input_values": samples}, num_tokens=num_tokens(len(samples), view.config))


def map_audio(data: Any, view: CheckpointView) -> MappedInput:
    """Map a recording. data: see `load_audio`, such as a path. Otherwise like `map_features`."""
    return map_features(torch.from_numpy(load_audio(data, SAMPLE_RATE))[None], view)
