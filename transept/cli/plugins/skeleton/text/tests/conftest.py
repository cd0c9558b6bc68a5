"""The reference: a small model of transformers with random weights, and the same checkpoint in Transept."""

import pytest
import torch
from transformers import BartConfig, BartForConditionalGeneration

from transept.testing import Parity


class SkeletonForConditionalGeneration(BartForConditionalGeneration):
    """The reference; transformers saves the name of its class as the architecture of the checkpoint."""


@pytest.fixture(scope="session")
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
        init_std=0.3,  # large, so that no two tokens are almost equally likely
    )
    reference = SkeletonForConditionalGeneration(config)
    return Parity(reference, tmp_path_factory.mktemp("checkpoint"))
