"""Whisper's input mapper against transformers' feature extractor, and the edge of its window."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import WhisperConfig, WhisperFeatureExtractor
from views import view_of

from transept.multimodal import MediaError
from transept.plugins.whisper.features import map_audio, map_features

LIBRIVOX = Path(__file__).parents[1] / "data" / "speech" / "librivox"


@pytest.mark.parametrize("num_mels", [80, 128])
def test_a_clip(num_mels):
    import soundfile

    path = LIBRIVOX / "austen-0870.flac"
    samples, rate = soundfile.read(path, dtype="float32")
    extractor = WhisperFeatureExtractor(feature_size=num_mels)
    expected = extractor(samples, sampling_rate=rate, return_tensors="pt").input_features[0]
    mapped = map_audio(path, view_of(WhisperConfig(num_mel_bins=num_mels)))
    assert mapped.num_tokens == 1500
    assert list(mapped.kwargs) == ["input_features"]
    torch.testing.assert_close(mapped.kwargs["input_features"], expected, rtol=0, atol=1e-4)


def test_silence_is_audio():
    features = map_audio((np.zeros(16_000, np.float32), 16_000), view_of(WhisperConfig())).kwargs["input_features"]
    assert features.shape == (80, 3000)
    assert torch.equal(features, torch.full_like(features, -1.5))


def test_a_smaller_window():
    view = view_of(WhisperConfig(max_source_positions=50))  # 1 s
    mapped = map_audio((np.zeros(16_000, np.float32), 16_000), view)
    assert mapped.num_tokens == 50
    assert mapped.kwargs["input_features"].shape == (80, 100)
    with pytest.raises(MediaError, match=r"1\.50 s long, .* at most 1\.00 s"):
        map_audio((np.zeros(24_000, np.float32), 16_000), view)


def test_audio_is_never_cut():
    rate = 44_100
    assert map_audio((np.zeros(30 * rate, np.float32), rate), view_of(WhisperConfig())).num_tokens == 1500
    with pytest.raises(MediaError, match=r"31\.00 s long, .* at most 30\.00 s. Use transept\.transcribe"):
        map_audio((np.zeros(31 * rate, np.float32), rate), view_of(WhisperConfig()))


def test_audio_that_cannot_be_read():
    with pytest.raises(MediaError, match="cannot be opened"):
        map_audio("nowhere.wav", view_of(WhisperConfig()))


def test_a_window_of_features_is_padded_with_zeros():
    view = view_of(WhisperConfig())
    features = torch.randn(80, 700)
    mapped = map_features(features, view)
    assert mapped.num_tokens == 1500
    padded = mapped.kwargs["input_features"]
    assert torch.equal(padded[:, :700], features)
    assert torch.equal(padded[:, 700:], torch.zeros(80, 2300))


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (torch.zeros(80, 3001), "hold 3001 frames, .* at most 3000"),
        (torch.zeros(128, 100), r"\[80, frames\], not \[128, 100\]"),
        (torch.zeros(1, 80, 100), r"not \[1, 80, 100\]"),
        ("talk.wav", "not str"),
    ],
)
def test_features_of_another_shape_are_refused(features, message):
    with pytest.raises(MediaError, match=message):
        map_features(features, view_of(WhisperConfig()))
