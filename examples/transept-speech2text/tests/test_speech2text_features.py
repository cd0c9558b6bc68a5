"""Filter banks and their normalisation beside transformers' feature extractor, which computes without torchaudio."""

from pathlib import Path

import numpy as np
import pytest
from transept_speech2text import audio
from transformers import Speech2TextConfig, Speech2TextFeatureExtractor

from transept.authoring import CheckpointView, MediaError

CONFIG = Speech2TextConfig(max_source_positions=1200)
SETTINGS = (
    {},
    {"do_ceptral_normalize": False},
    {"normalize_means": False},
    {"normalize_vars": False},
)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("num_samples", [560, 719, 16_000, 100_000])
def test_features_are_transformers(settings: dict[str, bool], num_samples: int, tmp_path: Path) -> None:
    """Equal to the last bit, for noise under a tone, with the checkpoint's settings."""
    extractor = Speech2TextFeatureExtractor(**settings)
    extractor.save_pretrained(tmp_path)
    noise = np.random.default_rng(num_samples).normal(0, 0.05, num_samples)
    sound = (noise + 0.3 * np.sin(np.arange(num_samples) * 0.2)).astype(np.float32)
    expected = extractor(sound, sampling_rate=16_000)["input_features"][0]
    mapped = audio.map_audio((sound, 16_000), CheckpointView(tmp_path, CONFIG))
    np.testing.assert_array_equal(mapped.kwargs["input_features"].numpy(), expected)
    assert mapped.num_tokens == (len(expected) + 3) // 4


def test_silence_and_less_than_a_frame_are_zeros(tmp_path: Path) -> None:
    """Transformers divides by zero, or has no frame."""
    for num_samples, num_frames in ((16_000, 98), (399, 1)):
        view = CheckpointView(tmp_path, CONFIG)
        mapped = audio.map_audio((np.zeros(num_samples, np.float32), 16_000), view)
        np.testing.assert_allclose(mapped.kwargs["input_features"], np.zeros((num_frames, 80)), atol=1e-5)


def test_what_is_too_long_is_refused(tmp_path: Path) -> None:
    """Long audio is an error, and is not cut."""
    with pytest.raises(MediaError, match=r"12\.50 s long, and one request carries at most 12 s"):
        audio.map_audio((np.zeros(200_240, np.float32), 16_000), CheckpointView(tmp_path, CONFIG))
