"""Skeleton against transformers on small random weights."""

import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration

from transept.testing import Parity


class SkeletonForConditionalGeneration(BartForConditionalGeneration):
    """The reference; transformers saves the name of its class as the architecture of the checkpoint."""


@pytest.fixture(scope="module")
def parity(tmp_path_factory: pytest.TempPathFactory) -> Parity:
    torch.manual_seed(0)
    config = BartConfig(
        vocab_size=320,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        max_position_embeddings=200,
        init_std=0.3,  # wide, so that no two tokens are nearly as likely
    )
    reference = SkeletonForConditionalGeneration(config)
    for weight in reference.state_dict().values():
        if weight.dim() == 1:  # norms and biases start as 1 and 0, which would hide that they are mixed up
            weight.add_(torch.randn_like(weight), alpha=0.3)
    return Parity(reference, tmp_path_factory.mktemp("checkpoint"))


def test_prefill(parity: Parity) -> None:
    parity.check_prefill()


def test_decode(parity: Parity) -> None:
    parity.check_decode()


def test_batch(parity: Parity) -> None:
    parity.check_batch()


def test_preemption(parity: Parity) -> None:
    parity.check_preemption()


def test_beam_search(parity: Parity) -> None:
    parity.check_beam_search()
