"""Audio mappers: the encoder's input is pairs of Kaldi's log-mel frames, normalised over a request's recording."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from transept.authoring import CheckpointView
from transept.multimodal import MappedInput
from transept.multimodal.audio import load_audio
from transept.multimodal.audio_limits import check_window
from transept.multimodal.filter_banks import filter_banks
from transept_seamless import FRAMES_PER_SECOND, SAMPLE_RATE, WINDOW_SECONDS

PAIR = 2  # frames that the encoder takes together
LONGEST = round(WINDOW_SECONDS * FRAMES_PER_SECOND) // PAIR  # pairs


def num_tokens(num_pairs: int, config: Any) -> int:
    """Return the number of encoder tokens of pairs, after the adapter's convolutions: one for 160 ms."""
    for _ in range(config.num_adapter_layers if config.add_adapter else 0):
        padded = num_pairs + 2 * (config.adaptor_stride // 2)
        num_pairs = (padded - config.adaptor_kernel_size) // config.adaptor_stride + 1
    return num_pairs


def recording_features(waveform: np.ndarray, view: CheckpointView, device: str) -> Tensor:
    """waveform: float32 [samples]. Returns the filter banks of all of it, [bins, frames], computed on the host."""
    return torch.from_numpy(filter_banks(waveform, view.config.feature_projection_input_dim // PAIR))


def map_features(data: Any, view: CheckpointView) -> MappedInput:
    """data: float32 [bins, frames], a slice of `recording_features`, which is normalised separately.

    Returns the result of transformers' SeamlessM4TFeatureExtractor: input_features, float32 [pairs, 2 * bins], and
    attention_mask, int64 [pairs], 0 for a pair with a padded half. Less than a pair becomes a pair of
    zeros. Raises MediaError for more than WINDOW_SECONDS.
    """
    banks = np.ascontiguousarray(torch.as_tensor(data).cpu().numpy())
    check_window(banks.shape[1] / FRAMES_PER_SECOND, WINDOW_SECONDS)
    if banks.shape[1] < PAIR:
        banks = np.zeros((len(banks), PAIR), np.float32)
    frames = banks.T
    frames = (frames - frames.mean(0)) / np.sqrt(frames.var(0, ddof=1) + 1e-7)
    missing = -len(frames) % PAIR
    features = np.pad(frames, ((0, missing), (0, 0))).reshape(-1, PAIR * len(banks))
    mask = torch.ones(len(features), dtype=torch.int64)
    mask[len(frames) // PAIR :] = 0
    kwargs = {"input_features": torch.from_numpy(np.ascontiguousarray(features)), "attention_mask": mask}
    return MappedInput(kwargs=kwargs, num_tokens=num_tokens(int(mask.sum()), view.config))


def map_audio(data: Any, view: CheckpointView) -> MappedInput:
    """Map a recording. data: see `load_audio`, such as a path. Otherwise like `map_features`."""
    return map_features(recording_features(load_audio(data, SAMPLE_RATE), view, "cpu"), view)
