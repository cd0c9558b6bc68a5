"""The reference: a small model of transformers with random weights, and the same checkpoint in Transept."""

import numpy as np
import pytest
import torch
from transformers import Speech2TextConfig, Speech2TextForConditionalGeneration, WhisperFeatureExtractor

from transept.testing import Parity

LENGTHS = (13_000, 3_000, 400, 96_000)  # samples; the last one is of 150 encoder tokens


class SkeletonForConditionalGeneration(Speech2TextForConditionalGeneration):
    """The reference; transformers saves the name of its class as the architecture of the checkpoint."""


@pytest.fixture(scope="session")
def parity(tmp_path_factory: pytest.TempPathFactory) -> Parity:
    torch.manual_seed(0)
    config = Speech2TextConfig(
        vocab_size=320,
        d_model=48,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=64,
        decoder_ffn_dim=64,
        conv_channels=64,
        max_source_positions=700,  # frames
        max_target_positions=200,
        init_std=0.15,  # large, so that no two tokens are almost equally likely
    )
    reference = SkeletonForConditionalGeneration(config)
    extractor = WhisperFeatureExtractor(chunk_length=7)  # seconds
    noise = np.random.default_rng(0)
    inputs = []
    for length in LENGTHS:
        sound = noise.normal(0, 0.1, length).astype(np.float32)
        features = extractor(sound, sampling_rate=16_000, return_tensors="pt").input_features
        frames = features[:, :, : length // extractor.hop_length].transpose(1, 2)
        inputs.append(({"audio": (sound, 16_000)}, {"input_features": frames}))  # ours, and transformers'
    return Parity(reference, tmp_path_factory.mktemp("checkpoint"), inputs=inputs)
