"""Donut (Kim et al. 2022): a Swin transformer reads a page, mBART's decoder writes its text and structure."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from transept.authoring import (
    AttentionMetadata,
    CheckpointView,
    ForConditionalGeneration,
    LayerContext,
    ModelShape,
    VocabParallelEmbedding,
    VocabParallelHead,
    transformers_encoder,
)
from transept.multimodal import MappedInput
from transept.multimodal.image_mapping import image_shape, load_pixel_values, patch_shape
from transept.plugins.bart.model import BartDecoder, BartEmbedding


def num_tokens(encoder: Any) -> int:
    """Return the tokens of an image, from the encoder's config: every stage but the last merges 2 x 2 patches.

    Incomplete patches and merges at the right and at the bottom are padded.
    """
    sides = zip(image_shape(encoder)[1:], patch_shape(encoder), strict=True)
    merged = 2 ** (len(encoder.depths) - 1)
    height, width = (-(-side // (patch * merged)) for side, patch in sides)
    return int(height * width)


def map_image(data: Any, view: CheckpointView) -> MappedInput:
    """Map an image. data: see load_image. Raises the errors of load_pixel_values."""
    values = load_pixel_values(data, view, image_shape(view.config.encoder))
    return MappedInput({"pixel_values": values}, num_tokens(view.config.encoder))


class Donut(ForConditionalGeneration):
    """Transformers' Swin transformer and mBART's decoder, with a projection between different widths."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__(config, context)
        encoder, decoder = config.encoder, config.decoder
        self.encoder = transformers_encoder(encoder, add_pooling_layer=False)
        same = encoder.hidden_size == decoder.d_model
        self.enc_to_dec_proj = nn.Identity() if same else nn.Linear(encoder.hidden_size, decoder.d_model)
        embedding = VocabParallelEmbedding(decoder.vocab_size, decoder.d_model, group=context.group)
        self.decoder = BartDecoder(decoder, BartEmbedding(decoder, embedding), pre_norm=True, context=context)
        tied = embedding.weight if decoder.tie_word_embeddings else None
        self.head = VocabParallelHead(decoder.vocab_size, decoder.d_model, group=context.group, weight=tied)

    @classmethod
    def shape(cls, config: Any) -> ModelShape:
        """Return the shape, from a transformers VisionEncoderDecoderConfig."""
        decoder = config.decoder
        return ModelShape.of_decoder(decoder, max_source_positions=num_tokens(config.encoder), encoder_takes_text=False)

    @classmethod
    def longest_features(cls, config: Any) -> dict[str, Tensor]:
        """See ForConditionalGeneration.longest_features."""
        return {"pixel_values": torch.zeros(image_shape(config.encoder))}

    def encode(
        self,
        encoder_input_ids: Tensor | None,
        encoder_positions: Tensor | None,
        attn_metadata: AttentionMetadata,
        **multimodal_kwargs: list[Tensor],
    ) -> Tensor:
        """pixel_values: a list of [channels, height, width]. Returns [images * tokens, d_model]."""
        hidden = self.encoder(pixel_values=torch.stack(multimodal_kwargs["pixel_values"])).last_hidden_state
        return self.enc_to_dec_proj(hidden.flatten(0, 1))
