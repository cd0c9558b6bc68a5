"""Small Pix2Struct checkpoints with seeded random weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rendered_text import LINES, line_image
from transformers import Pix2StructConfig, Pix2StructForConditionalGeneration, Pix2StructImageProcessorPil

from transept.testing import Parity

PATCH = 8  # pixels, of its height and of its width
VISION = {
    "hidden_size": 32,
    "patch_embed_hidden_size": PATCH * PATCH * 3,
    "d_ff": 64,
    "d_kv": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "seq_len": 64,
}
TEXT = {"vocab_size": 320, "hidden_size": 32, "d_ff": 64, "d_kv": 8, "num_layers": 2, "num_heads": 4}
SIZES = [(160, 40), (90, 90), (300, 20), (64, 128), (48, 48)]  # of images: width, height
MAX_PATCHES = 30


@dataclass(frozen=True)
class Pix2StructRow:
    """text: of the decoder's config, what differs. tied: whether the head is the embedding. settings: of generation."""

    text: dict[str, Any] = field(default_factory=dict)
    tied: bool = False
    settings: dict[str, Any] = field(default_factory=dict)

    def parity(self, directory: Path) -> Parity:
        torch.manual_seed(0)
        config = Pix2StructConfig(
            vision_config=VISION,
            text_config={**TEXT, **self.text},
            initializer_range=0.3,
            tie_word_embeddings=self.tied,
        )
        model = Pix2StructForConditionalGeneration(config).eval()
        torch.nn.init.normal_(model.encoder.embeddings.row_embedder.weight, std=0.3)
        torch.nn.init.normal_(model.decoder.embed_tokens.weight, std=0.3)
        model.generation_config.update(**self.settings)
        processor = Pix2StructImageProcessorPil(max_patches=MAX_PATCHES, patch_size={"height": PATCH, "width": PATCH})
        inputs = []
        for text, size in zip(LINES, SIZES, strict=True):
            image = line_image(text, size)
            made = processor(image, return_tensors="pt")
            patches = made.flattened_patches[:, made.attention_mask[0].bool()]  # the kit's reference takes no mask
            inputs.append(({"image": image}, {"flattened_patches": patches}))
        parity = Parity(model, directory, inputs=inputs)
        processor.save_pretrained(directory)
        return parity


PIX2STRUCT_ROWS = {
    "pix2struct": Pix2StructRow(settings={"max_length": 64}),
    "pix2struct, a tied head": Pix2StructRow({"dense_act_fn": "relu"}, tied=True),
}
