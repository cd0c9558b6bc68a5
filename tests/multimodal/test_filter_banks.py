"""Kaldi's filter banks beside the feature extractors of transformers that compute them."""

import numpy as np
import pytest
from transformers import SeamlessM4TFeatureExtractor, Speech2TextFeatureExtractor

from transept.multimodal import filter_banks as module
from transept.multimodal.filter_banks import filter_banks


def sound(num_samples: int) -> np.ndarray:
    """Noise under a tone."""
    noise = np.random.default_rng(num_samples).normal(0, 0.05, num_samples)
    return (noise + 0.3 * np.sin(np.arange(num_samples) * 0.2)).astype(np.float32)


@pytest.mark.parametrize("num_samples", [400, 719, 16_000, 50_000])
@pytest.mark.parametrize("num_mels", [40, 80])
def test_banks_are_transformers(num_samples: int, num_mels: int) -> None:
    waveform = sound(num_samples)
    found = filter_banks(waveform, num_mels)
    seamless = SeamlessM4TFeatureExtractor(num_mel_bins=num_mels)._extract_fbank_features(waveform)
    np.testing.assert_array_equal(found, seamless.T)
    speech2text = Speech2TextFeatureExtractor(num_mel_bins=num_mels, do_ceptral_normalize=False)
    (expected,) = speech2text(waveform, sampling_rate=16_000)["input_features"]
    np.testing.assert_array_equal(found, expected.T)


def test_long_recordings_are_computed_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the same numbers, up to the order in which products are summed."""
    whole = filter_banks(sound(50_000), 80)
    monkeypatch.setattr(module, "CHUNK_FRAMES", 100)
    np.testing.assert_allclose(filter_banks(sound(50_000), 80), whole, rtol=0, atol=1e-5)


def test_less_than_a_frame_has_none() -> None:
    assert filter_banks(sound(399), 80).shape == (80, 0)
