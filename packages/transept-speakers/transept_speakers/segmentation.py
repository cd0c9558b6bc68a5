"""The segmentation network: decides for each frame of a ten-second chunk which of up to three voices speak.

`diarizer` calls `segment`. The network is pyannote's segmentation-3.0 (Plaquet and Bredin 2023, "Powerset multi-class
cross entropy loss for neural speaker diarization"): learned band-pass filters, convolutions and a recurrent network.
The numbers of voices have no relation between chunks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transept_speakers.weights import read_weights

RATE = 16_000  # Hz
CHUNK = 10 * RATE  # samples; the length of inputs in training
STEP = CHUNK * 3 // 4  # samples between the starts of chunks
EDGE = (CHUNK - STEP) // 2  # samples at both ends of a chunk that belong to its neighbours
VOICES = 3  # at most in one chunk
HOP = 270  # samples between the starts of frames; 16.9 ms
FIELD = 991  # samples that a frame covers
BATCH = 8  # chunks
COMBINATIONS = np.array(  # of voices, one for each class
    [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [1, 0, 1], [0, 1, 1]], bool
)


@dataclass(frozen=True)
class Chunk:
    """The frames that are taken from one chunk: its middle, without the parts that its neighbours cover better.

    times: float64 [frames], the middle of each frame, in seconds of the recording.
    active: bool [frames, VOICES], True if the voice speaks.
    """

    times: npt.NDArray[np.float64]
    active: npt.NDArray[np.bool_]


class SegmentationNetwork(nn.Module):
    """Waveforms to log probabilities of combinations of voices."""

    def __init__(self) -> None:
        super().__init__()
        self.wave_norm = nn.InstanceNorm1d(1, affine=True)
        self.convs = nn.ModuleList(
            [nn.Conv1d(1, 80, 251, stride=10, bias=False), nn.Conv1d(80, 60, 5), nn.Conv1d(60, 60, 5)]
        )
        self.norms = nn.ModuleList([nn.InstanceNorm1d(channels, affine=True) for channels in (80, 60, 60)])
        self.lstm = nn.LSTM(60, 128, num_layers=4, batch_first=True, bidirectional=True)
        self.linear = nn.ModuleList([nn.Linear(256, 128), nn.Linear(128, 128)])
        self.classes = nn.Linear(128, len(COMBINATIONS))

    def forward(self, waveforms: Tensor) -> Tensor:
        """[chunks, samples] -> [chunks, frames, classes]."""
        x = self.wave_norm(waveforms.unsqueeze(1))  # [chunks, channels, positions], also below
        for number, (conv, norm) in enumerate(zip(self.convs, self.norms, strict=True)):
            x = conv(x)
            x = F.leaky_relu(norm(F.max_pool1d(x.abs() if number == 0 else x, 3)))
        x, _ = self.lstm(x.transpose(1, 2).contiguous())
        for linear in self.linear:
            x = F.leaky_relu(linear(x))
        return self.classes(x).log_softmax(-1)


@cache
def load_segmentation() -> SegmentationNetwork:
    """Return the network with its weights."""
    network = SegmentationNetwork()
    network.load_state_dict(read_weights("segmentation"))
    return network.eval()


def segment(waveform: npt.NDArray[np.float32]) -> list[Chunk]:
    """Return the chunks of a recording, in order; together they have every frame once.

    waveform: float32 [num_samples] at RATE.
    """
    starts = range(0, max(len(waveform) - CHUNK, 0) + STEP, STEP)
    chunks = []
    for start, classes in zip(starts, _classes(waveform, starts), strict=True):
        middles = start + np.arange(len(classes)) * HOP + FIELD / 2  # samples
        first = start + EDGE if start else 0
        end = len(waveform) if start == starts[-1] else start + CHUNK - EDGE
        own = (middles >= first) & (middles < min(end, len(waveform)))
        chunks.append(Chunk(middles[own] / RATE, COMBINATIONS[classes[own]]))
    return chunks


def _classes(waveform: npt.NDArray[np.float32], starts: range) -> Iterator[npt.NDArray[np.intp]]:
    """Yield the most likely class of each frame of each chunk, [frames]. The last chunk is padded with zeros."""
    for first in range(0, len(starts), BATCH):
        chunks = np.zeros((len(starts[first : first + BATCH]), CHUNK), np.float32)
        for row, start in zip(chunks, starts[first:], strict=False):
            samples = waveform[start : start + CHUNK]
            row[: len(samples)] = samples
        with torch.inference_mode():
            yield from load_segmentation()(torch.from_numpy(chunks)).argmax(-1).numpy()
