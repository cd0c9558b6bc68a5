"""The voice encoder: maps a stretch of speech to a point on a sphere, close to points of the same voice.

The network is that of "Generalized end-to-end loss for speaker verification" (Wan et al. 2018): three LSTM layers over
40 mel bands, and the last state through a linear layer. Its weights are those that the package Resemblyzer carries;
nothing else of that package is used.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import librosa
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

RATE = 16_000  # Hz
HOP = 160  # samples; 10 ms
WINDOW = 400  # samples; 25 ms
BANDS = 40
FRAMES = 160  # that the encoder was trained to hear at a time; 1.6 s
BATCH = 64  # stretches


class VoiceEncoder(nn.Module):
    """Mel spectrograms to embeddings."""

    def __init__(self, size: int = 256) -> None:
        super().__init__()
        self.lstm = nn.LSTM(BANDS, size, num_layers=3, batch_first=True)
        self.linear = nn.Linear(size, size)

    def forward(self, mels: Tensor) -> Tensor:
        """[voices, frames, BANDS] -> [voices, size], each of length 1."""
        _, (hidden, _) = self.lstm(mels)  # [layers, voices, size]
        return nn.functional.normalize(torch.relu(self.linear(hidden[-1])))


@lru_cache(maxsize=1)
def load_encoder() -> VoiceEncoder:
    """The encoder with its weights, from where Resemblyzer is installed."""
    spec = importlib.util.find_spec("resemblyzer")  # which does not import it
    assert spec is not None
    assert spec.submodule_search_locations
    file = Path(spec.submodule_search_locations[0]) / "pretrained.pt"
    weights = torch.load(file, map_location="cpu", weights_only=True)["model_state"]
    encoder = VoiceEncoder()
    encoder.load_state_dict({name: weights[name] for name in encoder.state_dict()})
    return encoder.eval()


def spectrogram(waveform: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """float32 [num_samples] at RATE -> the energies of mel bands, [1 + num_samples // HOP, BANDS]."""
    mels = librosa.feature.melspectrogram(y=waveform, sr=RATE, n_fft=WINDOW, hop_length=HOP, n_mels=BANDS)
    return np.ascontiguousarray(mels.T, np.float32)


@torch.inference_mode()
def embeddings(stretches: Sequence[npt.NDArray[np.float32]]) -> npt.NDArray[np.float32]:
    """Return embeddings of spectrograms [frames, BANDS]: [len(stretches), size]. Equal lengths run as one batch."""
    by_length: dict[int, list[int]] = {}
    for index, stretch in enumerate(stretches):
        by_length.setdefault(len(stretch), []).append(index)
    found: dict[int, Tensor] = {}
    for alike in by_length.values():
        for first in range(0, len(alike), BATCH):
            batch = alike[first : first + BATCH]
            mels = torch.from_numpy(np.stack([stretches[index] for index in batch]))
            found |= zip(batch, load_encoder()(mels), strict=True)
    return torch.stack([found[index] for index in range(len(stretches))]).numpy()
