"""Small Donut and Nougat checkpoints with seeded random weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rendered_text import LINES, line_image
from transformers import (
    DonutImageProcessorPil,
    DonutSwinConfig,
    MBartConfig,
    NougatImageProcessorPil,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
)

from transept.testing import Parity

HEIGHT, WIDTH = 32, 48
ENCODER = {
    "image_size": [HEIGHT, WIDTH],
    "patch_size": 4,
    "embed_dim": 16,
    "depths": [2, 2],
    "num_heads": [2, 4],
    "window_size": 4,
    "initializer_range": 0.3,
}
DECODER = {
    "vocab_size": 320,
    "d_model": 32,
    "decoder_layers": 2,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 200,
    "init_std": 0.3,
}
START = 7  # the token of the task that a checkpoint was tuned for
SIZES = [(160, 40), (90, 90), (300, 50), (64, 128), (48, 48)]  # of images: width, height


@dataclass(frozen=True)
class DonutRow:
    """encoder, decoder: what differs. settings: of generation. image_processor: DonutImageProcessorPil or another."""

    encoder: dict[str, Any] = field(default_factory=dict)
    decoder: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    image_processor: Any = DonutImageProcessorPil

    def parity(self, directory: Path) -> Parity:
        torch.manual_seed(1)
        encoder, decoder = DonutSwinConfig(**{**ENCODER, **self.encoder}), MBartConfig(**{**DECODER, **self.decoder})
        model = VisionEncoderDecoderModel(VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder))
        if decoder.scale_embedding:  # else every token predicts itself
            torch.nn.init.normal_(model.decoder.model.decoder.embed_tokens.weight, std=0.1)
        model.generation_config.update(decoder_start_token_id=START, **self.settings)
        height, width = encoder.image_size
        processor = self.image_processor(size={"height": height, "width": width})
        inputs = []
        for text, size in zip(LINES, SIZES, strict=True):
            image = line_image(text, size)
            inputs.append(({"image": image}, {"pixel_values": processor(image, return_tensors="pt").pixel_values}))
        made = Parity(model, directory, inputs=inputs)
        processor.save_pretrained(directory)
        return made


DONUT_ROWS = {
    "donut": DonutRow(decoder={"scale_embedding": True}, settings={"max_length": 64, "bad_words_ids": [[3]]}),
    "donut, projected, odd sizes": DonutRow({"image_size": [26, 44]}, {"d_model": 48, "tie_word_embeddings": False}),
    "nougat": DonutRow(decoder={"scale_embedding": True}, image_processor=NougatImageProcessorPil),
}
