"""Small Florence-2 checkpoints with seeded random weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from rendered_text import LINES, line_image
from text.small_checkpoints import bart_tokenizer
from transformers import CLIPImageProcessorPil, Florence2Config, Florence2ForConditionalGeneration, Florence2Processor

from transept.testing import Parity

VISION = {
    "depths": (1, 1),
    "patch_size": (7, 3),
    "patch_stride": (4, 2),
    "patch_padding": (3, 1),
    "patch_prenorm": (False, True),
    "embed_dim": (16, 24),
    "num_heads": (2, 4),
    "num_groups": (2, 4),
    "window_size": 3,
    "projection_dim": 32,
    "max_position_embeddings": 12,
    "initializer_range": 0.3,
}
TEXT = {
    "model_type": "bart",
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 200,
    "init_std": 0.3,
}
SIZES = [(160, 40), (90, 90), (300, 50), (64, 128), (48, 48)]  # of images: width, height
PROMPTS = ["<CAPTION>", "<OCR>", "<MORE_DETAILED_CAPTION>", "<OD>", "<REGION_TO_OCR><loc_1><loc_20>"]
IMAGE_TOKEN = "<image>"


@dataclass(frozen=True)
class FlorenceRow:
    """size: of images, height and width. text: what differs in BART's config. settings: of generation."""

    size: tuple[int, int] = (24, 24)
    text: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    tied: bool = True

    def model(self, processor: Florence2Processor) -> Florence2ForConditionalGeneration:
        torch.manual_seed(0)
        config = Florence2Config(
            vision_config=VISION,
            text_config={**TEXT, **self.text, "vocab_size": len(processor.tokenizer)},
            image_token_id=processor.image_token_id,
            tie_word_embeddings=self.tied,
        )
        model = Florence2ForConditionalGeneration(config).eval()
        model.generation_config.update(forced_eos_token_id=None, **self.settings)
        return model

    def processor(self) -> Florence2Processor:
        tokenizer = bart_tokenizer()
        tokenizer.add_special_tokens({"additional_special_tokens": [IMAGE_TOKEN]})
        tokenizer.image_token, tokenizer.image_token_id = IMAGE_TOKEN, tokenizer.convert_tokens_to_ids(IMAGE_TOKEN)
        height, width = self.size
        pixels = CLIPImageProcessorPil(size={"height": height, "width": width}, do_center_crop=False)
        pixels.image_seq_length = 1 + -(-height // 8) * -(-width // 8)
        return Florence2Processor(pixels, tokenizer)

    def parity(self, directory: Path) -> Parity:
        processor = self.processor()
        inputs = []
        for text, size, prompt in zip(LINES, SIZES, PROMPTS, strict=True):
            image = line_image(text, size)
            keywords = processor(images=image, text=prompt, return_tensors="pt")
            given = {"multi_modal_data": {"image": image}, "prompt": prompt}
            inputs.append((given, {name: keywords[name] for name in ("input_ids", "pixel_values")}))
        made = Parity(self.model(processor), directory, inputs=inputs)
        processor.save_pretrained(directory)
        return made


FLORENCE_ROWS = {
    "florence-2": FlorenceRow(
        settings={"num_beams": 3, "no_repeat_ngram_size": 3, "early_stopping": True, "forced_bos_token_id": 0}
    ),
    "florence-2, wide images, a head of its own": FlorenceRow((16, 40), {"scale_embedding": True}, tied=False),
}


def save_florence(directory: Path) -> tuple[Florence2ForConditionalGeneration, Florence2Processor]:
    """A checkpoint whose settings ask for beams. Returns the model and the processor of transformers."""
    row = FlorenceRow(settings={"num_beams": 3, "no_repeat_ngram_size": 3, "max_length": 20, "forced_bos_token_id": 0})
    processor = row.processor()
    model = row.model(processor)
    for part in (model, processor):
        part.save_pretrained(directory)
    return model, processor
