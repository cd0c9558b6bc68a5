"""MoonshineForConditionalGeneration beside transformers on small random weights and recordings of several lengths."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from transformers import MoonshineConfig, MoonshineForConditionalGeneration

from transept.testing import Parity

SAMPLES = (13_000, 3_000, 895, 25_000)  # 895 are one encoder token


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    """The model is tiny: every operation is slower on more threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


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


def test_prefill(parity: Parity) -> None:
    """Logits after the decoder prompt."""
    parity.check_prefill()


def test_decode(parity: Parity) -> None:
    """Greedy tokens and their logits, each recording alone."""
    parity.check_decode()


def test_batch(parity: Parity) -> None:
    """Greedy tokens in a batch that requests join one by one."""
    parity.check_batch()


def test_preemption(parity: Parity) -> None:
    """Greedy tokens with too little cache."""
    parity.check_preemption()


def test_beam_search(parity: Parity) -> None:
    """Hypotheses and scores of four beams."""
    parity.check_beam_search()


def test_bfloat16(parity: Parity) -> None:
    """The most likely tokens in bfloat16."""
    parity.check_low_precision(("bfloat16",))
