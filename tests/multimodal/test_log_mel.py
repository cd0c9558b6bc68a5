"""The log-mel features of a whole recording against openai-whisper's."""

import numpy as np
import pytest
import torch
from whisper.audio import N_FRAMES, N_SAMPLES
from whisper.audio import log_mel_spectrogram as openai_log_mel

from transept.multimodal import log_mel
from transept.multimodal.log_mel import recording_log_mel


def noise(num_samples: int, loudness: float = 0.1) -> np.ndarray:
    return np.random.default_rng(num_samples).normal(0, loudness, num_samples).astype(np.float32)


def expected(waveform: np.ndarray, num_mels: int) -> torch.Tensor:
    return openai_log_mel(waveform, num_mels, padding=N_SAMPLES)[:, :-N_FRAMES]


@pytest.fixture(autouse=True)
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_mel, "CHUNK_FRAMES", 100)  # 1 s


@pytest.mark.parametrize("num_mels", [80, 128])
def test_a_recording_of_many_chunks(num_mels: int) -> None:
    waveform = noise(35 * 16_000 + 77)
    features = recording_log_mel(waveform, num_mels)
    assert features.shape == (num_mels, 3500)
    assert features.dtype == torch.float32
    torch.testing.assert_close(features, expected(waveform, num_mels), rtol=0, atol=2e-5)


@pytest.mark.parametrize("num_samples", [1, 159, 160, 200, 201, 400, 15_999, 16_000, 16_001, 16_159])
def test_short_recordings_and_the_edges_of_chunks(num_samples: int) -> None:
    waveform = noise(num_samples)
    features = recording_log_mel(waveform, 80)
    assert features.shape == (80, num_samples // 160)
    torch.testing.assert_close(features, expected(waveform, 80), rtol=0, atol=2e-5)


def test_the_loudest_place_of_the_recording_sets_the_floor() -> None:
    waveform = np.concatenate([noise(32_000, 1e-5), noise(16_000, 0.5), np.zeros(32_000, np.float32)])
    features = recording_log_mel(waveform, 80)
    torch.testing.assert_close(features, expected(waveform, 80), rtol=0, atol=2e-5)
    assert features[:, :150].max() == features[:, 350:].max() == features.min() > -1.0  # silence alone comes to -1.5


def test_the_samples_after_the_last_frame_count_for_the_floor() -> None:
    waveform = np.concatenate([noise(16_000, 1e-4), np.full(100, 0.9, np.float32)])
    torch.testing.assert_close(recording_log_mel(waveform, 80), expected(waveform, 80), rtol=0, atol=2e-5)


def test_silence() -> None:
    waveform = np.zeros(32_000, np.float32)
    assert torch.equal(recording_log_mel(waveform, 80), torch.full((80, 200), -1.5))
    assert recording_log_mel(waveform[:0], 80).shape == (80, 0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU")
def test_a_gpu_computes_the_same() -> None:
    waveform = noise(70 * 16_000)  # more than a minute, which is computed at a time
    features = recording_log_mel(waveform, 128, "cuda")
    assert features.is_cuda
    torch.testing.assert_close(features.cpu(), recording_log_mel(waveform, 128), rtol=0, atol=1e-3)
