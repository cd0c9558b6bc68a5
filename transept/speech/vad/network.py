"""silero-vad's network, over many frames at a time.

`vad.spans` and `vad.listener` call it. Only the recurrent layer depends on the previous frame. The other layers are
computed as matrix products, because a frame is too short for PyTorch's convolutions.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from transept.multimodal.waveforms import Waveform

if TYPE_CHECKING:
    from torch import Tensor

FRAME = 512  # samples; 32 ms, for which the network gives one probability
CONTEXT = 64  # samples before a frame that the network also reads
BLOCK_FRAMES = 512  # at a time; 16 s


class SpeechNetwork:
    """The network with the state of its recurrent layer, for the frames of one recording or stream in their order."""

    def __init__(self) -> None:
        self._network = _load_network()
        cell = self._network.decoder.rnn
        self._hidden, self._memory = np.zeros(cell.hidden_size, np.float32), np.zeros(cell.hidden_size, np.float32)
        self._recurrent = cell.weight_hh.detach().T.contiguous().numpy()

    def __call__(self, frames: Tensor) -> npt.NDArray[np.float32]:
        """Return the probability of speech in each frame. frames: float32 [frames, CONTEXT + FRAME]."""
        import torch

        from transept.core.kernels.dispatch import RECURRENCE

        cell = self._network.decoder.rnn
        with torch.inference_mode():
            features = _features(self._network, frames)
            gates = torch.nn.functional.linear(features, cell.weight_ih, cell.bias_ih + cell.bias_hh)
            states = RECURRENCE.only(gates.numpy(), self._recurrent, self._hidden, self._memory)
            probabilities = self._network.decoder.decoder(torch.from_numpy(states).unsqueeze(-1))
        found: npt.NDArray[np.float32] = probabilities.flatten().numpy()
        return found


def speech_probabilities(waveform: Waveform) -> npt.NDArray[np.float32]:
    """Return the probability of speech in each frame of 32 ms: [-(-num_samples // FRAME)] float32.

    waveform: float32 [samples] at 16 kHz. The result equals the package's own model, frame by frame.
    """
    network = SpeechNetwork()
    return np.concatenate([np.empty(0, np.float32), *map(network, _frame_blocks(waveform))])


def _frame_blocks(waveform: Waveform) -> Iterator[Tensor]:
    """Yield blocks of frames, each with its context before it: [up to BLOCK_FRAMES, CONTEXT + FRAME].

    The recording is padded with zeros on both sides.
    """
    import torch

    size = BLOCK_FRAMES * FRAME
    for start in range(0, len(waveform), size):
        samples = waveform[max(start - CONTEXT, 0) : start + size]
        before = CONTEXT if start == 0 else 0
        after = -(before + len(samples) - CONTEXT) % FRAME
        yield torch.from_numpy(np.pad(samples, (before, after))).unfold(0, CONTEXT + FRAME, FRAME)


def _features(network: Any, frames: Tensor) -> Tensor:
    """Compute the input of the recurrent layer, [frames, 128]. frames: [frames, samples]."""
    import torch
    from torch.nn import functional as F

    basis = network.stft.forward_basis_buffer.squeeze(1)  # [real parts, then imaginary ones; window]
    window = basis.shape[1]
    padded = F.pad(frames, (0, CONTEXT), mode="reflect")
    real, imaginary = F.linear(padded.unfold(1, window, window // 2).contiguous(), basis).chunk(2, dim=-1)
    x = torch.hypot(real, imaginary)  # [frames, positions, channels], also below
    for block in network.encoder.children():
        conv = block.reparam_conv
        weight = conv.weight.transpose(1, 2)  # [out, neighbours, in]
        neighbours = F.pad(x, (0, 0, 1, 1)).unfold(1, weight.shape[1], conv.stride[0]).transpose(2, 3)
        x = F.linear(neighbours.contiguous().flatten(2), weight.flatten(1), conv.bias).relu_()
    return x.squeeze(1)


@cache
def _load_network() -> Any:
    import torch

    threads = torch.get_num_threads()
    from silero_vad import load_silero_vad

    torch.set_num_threads(threads)  # importing silero_vad sets one thread for the whole process
    return load_silero_vad()._model
