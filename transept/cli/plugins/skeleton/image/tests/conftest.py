"""The reference: a small model of transformers with random weights, and the same checkpoint in Transept."""

import numpy as np
import pytest
import torch
from transformers import (
    BartConfig,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
    ViTConfig,
    ViTImageProcessorPil,
)

from transept.testing import Parity

SIZES = ((40, 160), (90, 90), (128, 64), (48, 48))  # of images: height and width


class SkeletonForConditionalGeneration(VisionEncoderDecoderModel):
    """The reference; transformers saves the name of its class as the architecture of the checkpoint."""


@pytest.fixture(scope="session")
def parity(tmp_path_factory: pytest.TempPathFactory) -> Parity:
    torch.manual_seed(0)
    encoder = ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        image_size=96,
        patch_size=8,  # 145 encoder tokens
        initializer_range=0.3,  # large, so that no two tokens are almost equally likely
    )
    decoder = BartConfig(
        vocab_size=320,
        d_model=48,
        decoder_layers=2,
        decoder_attention_heads=4,
        decoder_ffn_dim=64,
        max_position_embeddings=200,
        init_std=0.3,
    )
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    reference = SkeletonForConditionalGeneration(config)
    processor = ViTImageProcessorPil(size={"height": 96, "width": 96})
    noise = np.random.default_rng(0)
    inputs = []
    for size in SIZES:
        image = noise.integers(0, 256, (*size, 3), np.uint8)
        inputs.append(({"image": image}, {**processor(image, return_tensors="pt")}))  # ours, and transformers'
    made = Parity(reference, tmp_path_factory.mktemp("checkpoint"), inputs=inputs)
    processor.save_pretrained(made.subject.directory)
    return made
