"""Canary and Cohere Transcribe beside transformers, on small random weights and recordings of several lengths."""

import numpy as np
import pytest
import torch
from transformers import (
    CanaryConfig,
    CanaryForConditionalGeneration,
    CohereAsrConfig,
    CohereAsrFeatureExtractor,
    CohereAsrForConditionalGeneration,
    ParakeetFeatureExtractor,
)

from transept.testing import CHECKS, Parity

SAMPLES = (33_000, 3_000, 640, 61_234)
VOCABULARY, BINS, RATE = 120, 24, 16_000
ENCODER = {
    "model_type": "parakeet_encoder",
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "num_mel_bins": BINS,
    "subsampling_conv_channels": 8,
    "scale_input": False,
    "initializer_range": 0.2,
}
DECODER = {
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "intermediate_size": 64,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 150,
    "initializer_range": 0.3,
    "attention_dropout": 0.0,
}


def canary() -> CanaryForConditionalGeneration:
    decoder = {"model_type": "canary_decoder", "hidden_size": 48, "head_dim": 12, **DECODER}
    config = CanaryConfig(
        encoder_config=ENCODER, decoder_config=decoder, vocab_size=VOCABULARY, initializer_range=0.3
    )
    return CanaryForConditionalGeneration(config)


def cohere() -> CohereAsrForConditionalGeneration:
    config = CohereAsrConfig(encoder_config=ENCODER, hidden_size=32, decoder_start_token_id=7, **DECODER)
    return CohereAsrForConditionalGeneration(config)


FAMILIES = {"canary": (canary, ParakeetFeatureExtractor), "cohere": (cohere, CohereAsrFeatureExtractor)}


@pytest.fixture(scope="module", params=FAMILIES)
def parity(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Parity:
    torch.manual_seed(0)
    make, extractor = FAMILIES[request.param]
    extract, generator = extractor(feature_size=BINS), np.random.default_rng(0)
    inputs = []
    for length in SAMPLES:
        sound = generator.normal(0, 0.1, length).astype(np.float32)
        features = extract(sound, sampling_rate=RATE, return_tensors="pt")
        theirs = {"input_features": features.input_features, "attention_mask": features.attention_mask}
        inputs.append(({"audio": (sound, RATE)}, theirs))
    return Parity(make().eval(), tmp_path_factory.mktemp(request.param), inputs=inputs)


@pytest.mark.parametrize("check", CHECKS)
def test_parity(parity: Parity, check: str) -> None:
    parity.check(check)
