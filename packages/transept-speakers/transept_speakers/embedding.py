"""The voice encoder: embeds a stretch of one voice's speech. Embeddings of the same voice are similar.

`diarizer` and the hook `embed_voice` call it. The network is CAM++ (Wang et al. 2023, "CAM++: a fast and efficient
network for speaker verification using context-aware masking"), trained by 3D-Speaker on Chinese and English speech.
Batch norms after convolutions are folded into their weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import numpy.typing as npt
import soxr
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transept.multimodal.audio import SAMPLE_RATE
from transept.multimodal.filter_banks import filter_banks
from transept_speakers.weights import read_weights

MELS = 80
SIZE = 192  # of an embedding
CHANNELS = 32  # of the convolutions over time and frequency
GROWTH = 32  # channels that each layer adds
STAGES = ((128, 12, 1), (256, 24, 2), (512, 16, 2))  # channels at first, layers, dilation
CONTEXT_FRAMES = 100  # over which masks average; 2 s
BATCH_FRAMES = 3000  # in all stretches of a batch; 30 s
PART_FRAMES = 300  # approximate length of the parts of a long recording; 3 s
SHORTEST = 3600  # samples; shorter recordings are padded with silence


class Residual(nn.Module):
    """Two convolutions over time and frequency. stride: of the frequencies."""

    def __init__(self, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(CHANNELS, CHANNELS, 3, stride=(stride, 1), padding=1)
        self.conv2 = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        self.shortcut = nn.Conv2d(CHANNELS, CHANNELS, 1, stride=(stride, 1)) if stride > 1 else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """[stretches, CHANNELS, frequencies, frames], with frequencies / stride in the result."""
        return F.relu_(self.conv2(F.relu_(self.conv1(x))) + self.shortcut(x))


class Scaled(nn.Module):
    """A batch norm before a ReLU, as a factor and an offset of each channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.empty(channels, 1))
        self.shift = nn.Parameter(torch.empty(channels, 1))

    def forward(self, x: Tensor) -> Tensor:
        """[stretches, channels, frames]."""
        return F.relu_(torch.addcmul(self.shift, x, self.scale))


class MaskedLayer(nn.Module):
    """A layer that computes GROWTH channels, times a mask that depends on the averages of a longer context."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.scaled = Scaled(channels)
        self.reduce = nn.Conv1d(channels, 4 * GROWTH, 1)
        self.local = nn.Conv1d(4 * GROWTH, GROWTH, 3, padding=dilation, dilation=dilation, bias=False)
        self.context = nn.Conv1d(4 * GROWTH, 2 * GROWTH, 1)
        self.mask = nn.Conv1d(2 * GROWTH, GROWTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        """[stretches, channels, frames] -> [stretches, GROWTH, frames]."""
        x = F.relu_(self.reduce(self.scaled(x)))
        averages = F.avg_pool1d(x, CONTEXT_FRAMES, ceil_mode=True) + x.mean(-1, keepdim=True)
        mask = torch.sigmoid(self.mask(F.relu_(self.context(averages))))
        return self.local(x) * mask.repeat_interleave(CONTEXT_FRAMES, -1)[..., : x.shape[-1]]


class Stage(nn.Module):
    """Densely connected layers: each reads the results of all earlier ones. A last layer halves the channels."""

    def __init__(self, channels: int, layers: int, dilation: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([MaskedLayer(channels + GROWTH * index, dilation) for index in range(layers)])
        grown = channels + GROWTH * layers
        self.scaled = Scaled(grown)
        self.halve = nn.Conv1d(grown, grown // 2, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[stretches, channels, frames]."""
        for layer in self.layers:
            x = torch.cat([x, layer(x)], dim=1)
        return self.halve(self.scaled(x))


class VoiceEncoder(nn.Module):
    """Log-mel filter banks to embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, CHANNELS, 3, padding=1)
        self.blocks = nn.ModuleList([Residual(stride) for stride in (2, 1, 2, 1)])
        self.last = nn.Conv2d(CHANNELS, CHANNELS, 3, stride=(2, 1), padding=1)
        self.halve_rate = nn.Conv1d(CHANNELS * MELS // 8, 128, 5, stride=2, padding=2)
        self.stages = nn.ModuleList([Stage(*stage) for stage in STAGES])
        self.scaled = Scaled(512)
        self.linear = nn.Linear(1024, SIZE)

    def forward(self, mels: Tensor) -> Tensor:
        """[stretches, MELS, frames] -> [stretches, SIZE]."""
        x = F.relu_(self.first(mels.unsqueeze(1)))  # [stretches, CHANNELS, frequencies, frames]
        for block in self.blocks:
            x = block(x)
        x = F.relu_(self.halve_rate(F.relu_(self.last(x)).flatten(1, 2)))  # [stretches, channels, frames / 2]
        for stage in self.stages:
            x = stage(x)
        x = self.scaled(x)
        return self.linear(torch.cat([x.mean(-1), x.std(-1)], dim=-1))


@cache
def load_encoder() -> VoiceEncoder:
    """Return the network with its weights."""
    encoder = VoiceEncoder()
    encoder.load_state_dict(read_weights("embedding"))
    return encoder.eval()


def embed(stretches: Sequence[npt.NDArray[np.float32]]) -> npt.NDArray[np.float32]:
    """Return embeddings of length 1: [len(stretches), SIZE]. Stretches with equally many frames run as one batch.

    stretches: filter banks, float32 [MELS, frames], of one voice each.
    """
    by_length: dict[int, list[int]] = {}
    for index, stretch in enumerate(stretches):
        by_length.setdefault(stretch.shape[1], []).append(index)
    found = np.empty((len(stretches), SIZE), np.float32)
    with torch.inference_mode():
        for length, alike in by_length.items():
            size = max(1, BATCH_FRAMES // length)
            for batch in (alike[first : first + size] for first in range(0, len(alike), size)):
                mels = torch.from_numpy(np.stack([stretches[index] for index in batch]))
                mels -= mels.mean(-1, keepdim=True)
                found[batch] = F.normalize(load_encoder()(mels)).numpy()
    return found


def embed_waveform(waveform: npt.NDArray[np.float32], sample_rate: int) -> npt.NDArray[np.float32]:
    """Return the embedding of one voice, float32 [SIZE], of length 1. Arguments: see the hook `embed_voice`."""
    samples = waveform if sample_rate == SAMPLE_RATE else soxr.resample(waveform, sample_rate, SAMPLE_RATE)
    mels = filter_banks(np.pad(samples, (0, max(0, SHORTEST - len(samples)))), MELS)
    parts = np.array_split(mels, max(1, round(mels.shape[1] / PART_FRAMES)), axis=1)
    average = embed(parts).mean(axis=0)
    return np.asarray(average / np.linalg.norm(average), np.float32)
