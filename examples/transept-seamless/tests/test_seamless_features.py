"""Pairs of frames and their mask beside transformers' feature extractor."""

from pathlib import Path

import numpy as np
import pytest
from transept_seamless import audio, languages, target_languages
from transept_seamless.languages import LANGUAGE_NAMES
from transformers import GenerationConfig, SeamlessM4TFeatureExtractor, SeamlessM4Tv2Config

from transept.authoring import CheckpointError, CheckpointView, MediaError

CONFIG = SeamlessM4Tv2Config()


@pytest.mark.parametrize("num_samples", [560, 719, 720, 880, 16_000, 100_000])
def test_features_are_transformers(num_samples: int, tmp_path: Path) -> None:
    """To the last bit, of noise under a tone, of odd and even numbers of frames."""
    noise = np.random.default_rng(num_samples).normal(0, 0.05, num_samples)
    sound = (noise + 0.3 * np.sin(np.arange(num_samples) * 0.2)).astype(np.float32)
    expected = SeamlessM4TFeatureExtractor()(sound, sampling_rate=16_000, return_tensors="np")
    mapped = audio.map_audio((sound, 16_000), CheckpointView(tmp_path, CONFIG))
    for name in ("input_features", "attention_mask"):
        np.testing.assert_array_equal(mapped.kwargs[name].numpy(), expected[name][0])


def test_less_than_a_pair_is_zeros(tmp_path: Path) -> None:
    """Transformers has no variance for these."""
    for num_samples in (0, 399, 559):
        banks = audio.recording_features(np.ones(num_samples, np.float32), CheckpointView(tmp_path, CONFIG), "cpu")
        mapped = audio.map_features(banks, CheckpointView(tmp_path, CONFIG))
        np.testing.assert_array_equal(mapped.kwargs["input_features"], np.zeros((1, 160)))
        assert (mapped.kwargs["attention_mask"].tolist(), mapped.num_tokens) == ([1], 1)


def test_what_is_too_long_is_refused(tmp_path: Path) -> None:
    """Long audio is an error, and is not cut."""
    with pytest.raises(MediaError, match=r"30\.50 s long, and one request carries at most 30 s"):
        audio.map_audio((np.zeros(488_240, np.float32), 16_000), CheckpointView(tmp_path, CONFIG))


def test_a_checkpoint_without_languages_is_refused(tmp_path: Path) -> None:
    """With the name of the file that lacks them."""
    view = CheckpointView(tmp_path, CONFIG, load_generation_config=GenerationConfig)
    with pytest.raises(CheckpointError, match=r'generation_config\.json" lacks text_decoder_lang_to_code_id'):
        target_languages(view)
    settings = '{"_from_model_config": true, "text_decoder_lang_to_code_id": {"deu": 5}}'
    (tmp_path / "generation_config.json").write_text(settings)
    with pytest.raises(CheckpointError, match='"_from_model_config": true, by which transformers leaves out'):
        target_languages(view)


def test_names_of_languages_are_of_one_each() -> None:
    """No name or two letters stand twice in the table."""
    assert (LANGUAGE_NAMES["de"], LANGUAGE_NAMES["german"], LANGUAGE_NAMES["zh-tw"]) == ("deu", "deu", "cmn_Hant")
    named = [name for entry in languages._NAMES.split(",") for name in entry.split()[1:]]
    assert len(named) == len(set(named)) == len(LANGUAGE_NAMES) - 1
