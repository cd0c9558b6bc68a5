"""SpeechT5ForSpeechToText beside transformers on small random weights and recordings of several lengths."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transept_speecht5 import audio
from transformers import SpeechT5Config, SpeechT5FeatureExtractor, SpeechT5ForSpeechToText

from transept.authoring import CheckpointView, MediaError
from transept.testing import CHECKS, Parity

SAMPLES = (13_000, 3_000, 400, 25_000)  # 400 are one token
SMALL = {"conv_dim": (24, 32, 32), "conv_kernel": (10, 8, 5), "conv_stride": (5, 8, 8)}
NORMED = {
    **SMALL,
    "feat_extract_norm": "layer",
    "conv_bias": True,
    "scale_embedding": True,
    "num_conv_pos_embeddings": 9,
    # No output holds the padding token then: after one transformers counts positions in two ways, by its cache or not.
    "max_text_positions": 56,
}


def sound(num_samples: int) -> np.ndarray:
    """Noise, and some direct current under it."""
    return np.random.default_rng(num_samples).normal(0.05, 0.1, num_samples).astype(np.float32)


@pytest.fixture(scope="module", params=[({}, False), (NORMED, True)], ids=["released", "normed"])
def parity(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Parity:
    """Two layers a side; convolutions as released, and fewer with a norm each over normalised waveforms."""
    torch.manual_seed(0)
    given, do_normalize = request.param
    sizes = {
        "vocab_size": 60,
        "hidden_size": 48,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 6,
        "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 96,
        "conv_dim": (24,) * 7,
        "num_conv_pos_embeddings": 16,
        "num_conv_pos_embedding_groups": 4,
        "encoder_max_relative_position": 12,
        "max_text_positions": 160,
        "initializer_range": 0.2,
    }
    config = SpeechT5Config(**sizes | given)
    reference = SpeechT5ForSpeechToText(config)
    extractor = SpeechT5FeatureExtractor(do_normalize=do_normalize)
    directory = tmp_path_factory.mktemp("speecht5")
    extractor.save_pretrained(directory)
    inputs = []
    for length in SAMPLES:
        heard = extractor(sound(length), sampling_rate=16_000, return_tensors="pt", return_attention_mask=False)
        inputs.append(({"audio": (sound(length), 16_000)}, dict(heard)))
    return Parity(reference, directory, inputs=inputs)


@pytest.mark.parametrize("check", CHECKS)
def test_parity(parity: Parity, check: str) -> None:
    """Logits and tokens equal transformers'."""
    parity.check(check)


@pytest.mark.parametrize("do_normalize", [False, True])
def test_features_are_transformers(do_normalize: bool, tmp_path: Path) -> None:
    """Equal to the last bit, with the checkpoint's settings."""
    extractor = SpeechT5FeatureExtractor(do_normalize=do_normalize)
    extractor.save_pretrained(tmp_path)
    view = CheckpointView(tmp_path, SpeechT5Config())
    for length, tokens in ((400, 1), (719, 1), (720, 2), (48_000, 149)):
        expected = extractor(sound(length), sampling_rate=16_000)["input_values"][0]
        mapped = audio.map_audio((sound(length), 16_000), view)
        np.testing.assert_array_equal(mapped.kwargs["input_values"].numpy(), expected)
        assert mapped.num_tokens == tokens


def test_what_is_too_short_gets_silence_and_what_is_too_long_is_refused(tmp_path: Path) -> None:
    """Short audio is padded, and long audio is an error."""
    view = CheckpointView(tmp_path, SpeechT5Config())
    short = audio.map_audio((sound(200), 16_000), view)
    np.testing.assert_array_equal(short.kwargs["input_values"][200:], np.zeros(200))
    assert short.num_tokens == 1
    with pytest.raises(MediaError, match=r"30\.50 s long, and one request carries at most 30 s"):
        audio.map_audio((sound(488_000), 16_000), view)
