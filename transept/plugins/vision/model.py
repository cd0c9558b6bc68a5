"""TrOCR (Li et al. 2021): ViT or DeiT reads an image, and a decoder of post-norm layers writes its text."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from transept.authoring import (
    AttentionMetadata,
    CheckpointError,
    CheckpointView,
    DecoderLayers,
    EncoderLayer,
    EncoderLayers,
    ForConditionalGeneration,
    LayerConfig,
    LayerContext,
    ModelShape,
    VocabParallelEmbedding,
    VocabParallelHead,
    fairseq_sinusoids,
)
from transept.multimodal import MappedInput
from transept.multimodal.image_mapping import image_shape, load_pixel_values, num_patches, patch_shape

POSITION_OFFSET = 2  # the first two rows of a learned position table belong to padding


def num_tokens(encoder: Any) -> int:
    """Return the tokens of an image, from the encoder's config: its patches, after one token, or two in DeiT."""
    return num_patches(encoder) + (2 if encoder.model_type == "deit" else 1)


def map_image(data: Any, view: CheckpointView) -> MappedInput:
    """Map an image. data: see load_image. Raises the errors of load_pixel_values."""
    values = load_pixel_values(data, view, image_shape(view.config.encoder))
    return MappedInput({"pixel_values": values}, num_tokens(view.config.encoder))


class VisionTransformer(nn.Module):
    """ViT, and DeiT with a distillation token after the class token.

    projection: applied to the hidden states.
    """

    def __init__(self, config: Any, projection: nn.Module, context: LayerContext) -> None:
        super().__init__()
        width, patch = config.hidden_size, patch_shape(config)
        norm = partial(nn.LayerNorm, eps=config.layer_norm_eps)
        self.patches = nn.Conv2d(config.num_channels, width, patch, stride=patch)
        self.cls_token = nn.Parameter(torch.empty(1, 1, width))
        self.distillation_token = nn.Parameter(torch.empty(1, 1, width)) if config.model_type == "deit" else None
        self.position_embeddings = nn.Parameter(torch.empty(1, num_tokens(config), width))
        sizes = (width, config.num_attention_heads, config.intermediate_size)
        layer = LayerConfig(*sizes, config.hidden_act, pre_norm=True, norm=norm, qkv_bias=config.qkv_bias)
        self.layers = EncoderLayers(EncoderLayer(layer, context) for _ in range(config.num_hidden_layers))
        self.norm = norm(width)
        self.projection = projection

    def forward(self, metadata: AttentionMetadata, pixel_values: list[Tensor]) -> Tensor:
        """pixel_values: images, [channels, height, width] each. Returns [images * tokens, projection's width]."""
        images = torch.stack(pixel_values)
        patches = self.patches(images).flatten(2).transpose(1, 2)  # [images, patches, hidden_size]
        first = [token for token in (self.cls_token, self.distillation_token) if token is not None]
        x = torch.cat([*(token.expand(len(images), -1, -1) for token in first), patches], dim=1)
        x = (x + self.position_embeddings).flatten(0, 1)
        return self.projection(self.norm(self.layers(x, metadata)))


class TrOCRDecoder(nn.Module):
    """TrOCR's decoder. Positions are learned, or sinusoidal as in fairseq, without one for padding."""

    embed_positions: Tensor

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__()
        self.embed_tokens = VocabParallelEmbedding(config.vocab_size, config.d_model, group=context.group)
        self.scale = config.d_model**0.5 if config.scale_embedding else 1.0
        if config.use_learned_position_embeddings:
            self.offset, self.padding = POSITION_OFFSET, None
            rows = config.max_position_embeddings + POSITION_OFFSET
            self.embed_positions = nn.Parameter(torch.empty(rows, config.d_model))
        else:
            self.offset, self.padding = config.pad_token_id + 1, config.pad_token_id
            table = fairseq_sinusoids(config.max_position_embeddings, config.d_model, config.pad_token_id)
            self.register_buffer("embed_positions", table, persistent=False)
        self.layernorm_embedding = nn.LayerNorm(config.d_model) if config.layernorm_embedding else nn.Identity()
        cross = config.cross_attention_hidden_size or config.d_model
        self.layers = DecoderLayers.of(config, context, pre_norm=False, encoder_hidden_size=cross)

    def forward(self, input_ids: Tensor, positions: Tensor, *step: Any) -> Tensor:
        """input_ids, positions: [tokens]. step: further arguments of layers. Returns [tokens, d_model]."""
        rows = positions + self.offset
        if self.padding is not None:
            rows = rows.masked_fill(input_ids == self.padding, self.padding)
        x = self.layernorm_embedding(self.embed_tokens(input_ids) * self.scale + self.embed_positions[rows])
        return self.layers(x, *step)


class TrOCR(ForConditionalGeneration):
    """A vision transformer and a TrOCR decoder, with a projection between different widths."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__(config, context)
        encoder, decoder = config.encoder, config.decoder
        self.decoder = TrOCRDecoder(decoder, context)
        cross = decoder.cross_attention_hidden_size
        if cross is not None and cross != encoder.hidden_size:
            raise CheckpointError(f"cross_attention_hidden_size is {cross}, not the encoder's {encoder.hidden_size}")
        projects = cross is None and encoder.hidden_size != decoder.d_model
        projection = nn.Linear(encoder.hidden_size, decoder.d_model) if projects else nn.Identity()
        self.encoder = VisionTransformer(encoder, projection, context)
        tied = self.decoder.embed_tokens.weight if decoder.tie_word_embeddings else None
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
