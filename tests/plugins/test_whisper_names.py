"""Whisper's short names are those of openai-whisper and faster-whisper, and mean what they mean there."""

import pytest
import whisper
from transformers import WhisperConfig, WhisperForConditionalGeneration

from transept.plugins.whisper.published import PUBLISHED
from transept.registry.plugins import discover
from transept.registry.published import published_checkpoints, repository_of


def test_every_name_of_openai_whisper_is_known():
    assert set(whisper.available_models()) <= set(PUBLISHED)
    assert repository_of("small", discover()) == "Systran/faster-whisper-small"
    assert repository_of("smal", discover()) is None
    assert set(published_checkpoints(discover())) >= set(PUBLISHED)


def test_names_are_those_of_faster_whisper():
    utils = pytest.importorskip("faster_whisper.utils")
    assert {name: published.repository for name, published in PUBLISHED.items()} == utils._MODELS


@pytest.mark.parametrize(
    ("name", "d_model", "encoder_layers", "decoder_layers", "vocab_size", "num_mel_bins"),
    [
        ("tiny.en", 384, 4, 4, 51864, 80),
        ("base", 512, 6, 6, 51865, 80),
        ("small", 768, 12, 12, 51865, 80),
        ("medium", 1024, 24, 24, 51865, 80),
        ("large-v2", 1280, 32, 32, 51865, 80),
        ("large-v3", 1280, 32, 32, 51866, 128),
        ("turbo", 1280, 32, 4, 51866, 128),
        ("distil-small.en", 768, 12, 4, 51864, 80),
        ("distil-medium.en", 1024, 24, 2, 51864, 80),
        ("distil-large-v2", 1280, 32, 2, 51865, 80),
        ("distil-large-v3", 1280, 32, 2, 51866, 128),
    ],
)
def test_sizes_are_those_of_the_weights_in_float16(
    name, d_model, encoder_layers, decoder_layers, vocab_size, num_mel_bins
):
    import torch

    config = WhisperConfig(
        vocab_size=vocab_size,
        d_model=d_model,
        encoder_layers=encoder_layers,
        decoder_layers=decoder_layers,
        encoder_ffn_dim=4 * d_model,
        decoder_ffn_dim=4 * d_model,
        encoder_attention_heads=d_model // 64,
        decoder_attention_heads=d_model // 64,
        num_mel_bins=num_mel_bins,
    )
    with torch.device("meta"):
        model = WhisperForConditionalGeneration(config)
    megabytes = 2 * sum(weight.numel() for weight in model.parameters()) / 1e6
    assert PUBLISHED[name].megabytes == pytest.approx(megabytes, abs=1)
