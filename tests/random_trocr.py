"""Small TrOCR checkpoints with seeded random weights, in the configurations of those that Microsoft published."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from rendered_text import LINES, line_image
from text.small_checkpoints import bart_tokenizer
from transformers import (
    DeiTConfig,
    DeiTImageProcessorPil,
    TrOCRConfig,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
    ViTConfig,
    ViTImageProcessorPil,
)

from transept.testing import Parity

VOCABULARY = 320
ENCODER = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 48,
    "patch_size": 16,
    "initializer_range": 0.3,
}
DECODER = {
    "vocab_size": VOCABULARY,
    "d_model": 48,
    "decoder_layers": 2,
    "decoder_attention_heads": 4,
    "decoder_ffn_dim": 64,
    "max_position_embeddings": 200,
    "init_std": 0.3,
}
STAGE_1 = {
    "activation_function": "relu",
    "use_learned_position_embeddings": False,
    "layernorm_embedding": False,
    "scale_embedding": True,
    "tie_word_embeddings": False,
}
SIZES = [(160, 40), (90, 90), (300, 50), (64, 128), (48, 48)]  # of images: width, height


@dataclass(frozen=True)
class Row:
    """encoder: ViTConfig or DeiTConfig. settings: of generation."""

    encoder: Any
    decoder: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    def model(self) -> VisionEncoderDecoderModel:
        torch.manual_seed(0)
        decoder = TrOCRConfig(**{**DECODER, **self.decoder})
        config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(self.encoder, decoder)
        model = VisionEncoderDecoderModel(config).eval()
        if decoder.scale_embedding:  # else every token predicts itself
            torch.nn.init.normal_(model.decoder.model.decoder.embed_tokens.weight, std=0.05)
        if not decoder.use_learned_position_embeddings:  # transformers counts padding with its cache, and not without
            model.decoder.output_projection.weight.data[decoder.pad_token_id] = 0  # so none is to be written
        model.generation_config.update(**self.settings)
        return model

    @property
    def processor(self) -> Any:
        height_width = self.encoder.image_size
        height, width = (height_width, height_width) if isinstance(height_width, int) else height_width
        size = {"height": height, "width": width}
        if self.encoder.model_type == "deit":
            return DeiTImageProcessorPil(size=size, do_center_crop=False)
        return ViTImageProcessorPil(size=size)

    def parity(self, directory: Path, **options: Any) -> Parity:
        processor = self.processor
        inputs = []
        for text, size in zip(LINES, SIZES, strict=True):
            image = line_image(text, size)
            inputs.append(({"image": image}, {"pixel_values": processor(image, return_tensors="pt").pixel_values}))
        made = Parity(self.model(), directory, inputs=inputs, **options)
        processor.save_pretrained(directory)
        return made


BEAMS = {"num_beams": 4, "max_length": 64, "length_penalty": 2.0, "no_repeat_ngram_size": 3, "early_stopping": True}
ROWS = {
    "trocr-base": Row(ViTConfig(**ENCODER, qkv_bias=False), {"cross_attention_hidden_size": 32}, BEAMS),
    "trocr-base, stage 1": Row(ViTConfig(**ENCODER, qkv_bias=False), {**STAGE_1, "cross_attention_hidden_size": 32}),
    "trocr-large": Row(ViTConfig(**ENCODER, qkv_bias=False), {"d_model": 32, "cross_attention_hidden_size": 32}),
    "trocr-large-printed": Row(ViTConfig(**{**ENCODER, "hidden_size": 48}), STAGE_1, BEAMS),
    "trocr-small": Row(
        DeiTConfig(**ENCODER),
        {"cross_attention_hidden_size": 32, "scale_embedding": True, "tie_word_embeddings": False},
    ),
    "projected, wide images": Row(ViTConfig(**{**ENCODER, "image_size": [32, 80], "patch_size": [16, 8]})),
}


def save_trocr(directory: Path) -> VisionEncoderDecoderModel:
    """A checkpoint with a tokenizer, whose settings ask for beams. Returns the model of transformers."""
    tokenizer = bart_tokenizer()
    base = ROWS["trocr-base"]
    row = replace(base, decoder={**base.decoder, "vocab_size": len(tokenizer)}, settings={**BEAMS, "max_length": 24})
    model = row.model()
    for part in (model, tokenizer, row.processor):
        part.save_pretrained(directory)
    return model
