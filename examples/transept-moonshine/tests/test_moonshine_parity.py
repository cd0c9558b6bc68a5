"""MoonshineForConditionalGeneration beside transformers on small random weights and recordings of several lengths."""

import numpy as np
import pytest
import torch
from transformers import MoonshineConfig, MoonshineForConditionalGeneration

from transept.testing import CHECKS, Parity

SAMPLES = (13_000, 3_000, 895, 25_000)  # 895 are one encoder token


@pytest.fixture(scope="module")
def parity(tmp_path_factory: pytest.TempPathFactory) -> Parity:
    """Two layers a side; of a head's 12 numbers 10 turn."""
    torch.manual_seed(0)
    config = MoonshineConfig(
        vocab_size=320,
        hidden_size=48,
        intermediate_size=64,
        encoder_num_hidden_layers=2,
        decoder_num_hidden_layers=2,
        encoder_num_attention_heads=4,
        decoder_num_attention_heads=4,
        max_position_embeddings=150,
        initializer_range=0.2,
        pad_token_id=2,
    )
    reference = MoonshineForConditionalGeneration(config)
    generator = np.random.default_rng(0)
    sounds = [generator.normal(0, 0.1, length).astype(np.float32) for length in SAMPLES]
    inputs = [({"audio": (sound, 16_000)}, {"input_values": torch.from_numpy(sound)[None]}) for sound in sounds]
    return Parity(reference, tmp_path_factory.mktemp("moonshine"), inputs=inputs)


@pytest.mark.parametrize("check", CHECKS)
def test_parity(parity: Parity, check: str) -> None:
    """Logits and tokens equal transformers'."""
    parity.check(check)
