"""Kaldi's log-mel filter banks: the features of encoders from fairseq and similar ones.

Input mappers of speech families call it on waveforms from `load_audio`. Whisper's are in `log_mel`.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from transept.multimodal.audio import SAMPLE_RATE
from transept.multimodal.waveforms import Waveform

FRAMES_PER_SECOND = 100
FRAME, HOP = 400, SAMPLE_RATE // FRAMES_PER_SECOND  # samples: 25 ms every 10 ms
N_FFT = 512  # samples
CHUNK_FRAMES = 3000  # at a time: 30 s, about 40 MB
FULL_SCALE = 2.0**15  # Kaldi's samples are integers of 16 bits
PREEMPHASIS = 0.97
LOWEST_HZ = 20.0
LEAST_ENERGY = 1.192092955078125e-07


def filter_banks(waveform: Waveform, num_mels: int) -> npt.NDArray[np.float32]:
    """Compute the logarithm of the energy in mel filters, without dither.

    waveform: float32 [samples] at 16 kHz. Returns float32 [num_mels, frames], 100 whole frames a second; none for less
    than FRAME samples. Equal to transformers' Speech2TextFeatureExtractor, where that
    computes without torchaudio, and SeamlessM4TFeatureExtractor, before they normalise.
    """
    num_frames = max(0, 1 + (len(waveform) - FRAME) // HOP)
    banks = np.empty((num_mels, num_frames), np.float32)
    window = np.hanning(FRAME) ** 0.85  # Povey's
    for first in range(0, num_frames, CHUNK_FRAMES):
        last = min(first + CHUNK_FRAMES, num_frames)
        samples = (waveform[first * HOP : (last - 1) * HOP + FRAME] * np.float32(FULL_SCALE)).astype(np.float64)
        frames = np.lib.stride_tricks.sliding_window_view(samples, FRAME)[::HOP]
        frames = frames - frames.mean(axis=1, keepdims=True)
        emphasized = frames - PREEMPHASIS * np.roll(frames, 1, axis=1)
        emphasized[:, 0] = frames[:, 0] * (1 - PREEMPHASIS)
        spectrum = np.fft.rfft(emphasized * window, N_FFT).astype(np.complex64)
        energy = _mel_filters(num_mels) @ (np.abs(spectrum, dtype=np.float64) ** 2).T
        banks[:, first:last] = np.log(np.maximum(LEAST_ENERGY, energy))
    return banks


@lru_cache(maxsize=4)
def _mel_filters(num_mels: int) -> npt.NDArray[np.float64]:
    """Return filters that are triangles in mel, from LOWEST_HZ to half of the sample rate: [num_mels, bins]."""
    edges = np.linspace(_mel(LOWEST_HZ), _mel(SAMPLE_RATE / 2), num_mels + 2)
    slopes = edges[:, None] - _mel(SAMPLE_RATE / N_FFT * np.arange(N_FFT // 2 + 1))  # [num_mels + 2, bins]
    width = np.diff(edges)[:, None]
    filters: npt.NDArray[np.float64] = np.maximum(0.0, np.minimum(-slopes[:-2] / width[:-1], slopes[2:] / width[1:]))
    return filters


def _mel(hertz: npt.ArrayLike) -> npt.NDArray[np.float64]:
    scaled: npt.NDArray[np.float64] = 1127.0 * np.log(1.0 + np.asarray(hertz) / 700.0)
    return scaled
