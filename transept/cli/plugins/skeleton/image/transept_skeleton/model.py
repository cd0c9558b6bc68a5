"""The Skeleton model: a vision transformer over patches of an image, and a text decoder over tokens without padding.

The tokens of all sequences lie one after the other in one dimension. Attention knows from `metadata` which of them
belong together, masks, and keeps keys and values in the paged cache. All other layers see tokens only.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from transept.authoring import (
    AttentionMetadata,
    DecoderLayer,
    DecoderLayers,
    EncoderLayer,
    ForConditionalGeneration,
    LayerConfig,
    LayerContext,
    ModelShape,
    VocabParallelEmbedding,
    VocabParallelHead,
)
from transept.multimodal.image_mapping import image_shape, patch_shape

from .mapper import num_tokens

POSITION_OFFSET = 2  # row of position 0 in the decoder's position table


class Encoder(nn.Module):
    """Images to hidden states. config: the encoder's, in config.json under "encoder"."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__()
        width, patch = config.hidden_size, patch_shape(config)
        norm = partial(nn.LayerNorm, eps=config.layer_norm_eps)
        sizes = (width, config.num_attention_heads, config.intermediate_size)
        layer = LayerConfig(*sizes, config.hidden_act, pre_norm=True, norm=norm, qkv_bias=config.qkv_bias)
        self.patches = nn.Conv2d(config.num_channels, width, patch, stride=patch)
        self.cls_token = nn.Parameter(torch.empty(1, 1, width))
        self.position_embeddings = nn.Parameter(torch.empty(1, num_tokens(config), width))
        self.layers = nn.ModuleList(EncoderLayer(layer, context) for _ in range(config.num_hidden_layers))
        self.norm = norm(width)

    def forward(self, images: Tensor, metadata: AttentionMetadata) -> Tensor:
        """images: [images, channels, height, width]. Returns [images * tokens, hidden_size]."""
        patches = self.patches(images).flatten(2).transpose(1, 2)  # [images, patches, hidden_size]
        x = torch.cat([self.cls_token.expand(len(images), -1, -1), patches], dim=1) + self.position_embeddings
        x = x.flatten(0, 1)
        for layer in self.layers:
            x = layer(x, metadata)
        return self.norm(x)


class Decoder(nn.Module):
    """Tokens and the encoder's hidden states to hidden states. config: the decoder's."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__()
        sizes = (config.d_model, config.decoder_attention_heads, config.decoder_ffn_dim)
        layer = LayerConfig(*sizes, config.activation_function, pre_norm=False)
        self.scale = config.d_model**0.5 if config.scale_embedding else 1.0
        self.embed_tokens = VocabParallelEmbedding(config.vocab_size, config.d_model, group=context.group)
        self.embed_positions = nn.Embedding(config.max_position_embeddings + POSITION_OFFSET, config.d_model)
        self.layernorm_embedding = nn.LayerNorm(config.d_model)
        self.layers = DecoderLayers(DecoderLayer(layer, context) for _ in range(config.decoder_layers))

    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor,
        kv_caches: list[Tensor],
        metadata: AttentionMetadata,
    ) -> Tensor:
        """input_ids, positions: [tokens], kv_caches: one a layer. Returns [tokens, d_model]."""
        x = self.embed_tokens(input_ids) * self.scale + self.embed_positions(positions + POSITION_OFFSET)
        x = self.layernorm_embedding(x)
        return self.layers(x, kv_caches, metadata)


class SkeletonForConditionalGeneration(ForConditionalGeneration):
    """Both sides, the projection between them, and the head."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__(config, context)
        self.encoder = Encoder(config.encoder, context)
        self.enc_to_dec_proj = nn.Linear(config.encoder.hidden_size, config.decoder.d_model)
        self.decoder = Decoder(config.decoder, context)
        vocab_size, width = config.decoder.vocab_size, config.decoder.d_model
        tied = self.decoder.embed_tokens.weight if config.decoder.tie_word_embeddings else None
        self.lm_head = VocabParallelHead(vocab_size, width, group=context.group, weight=tied)

    @classmethod
    def shape(cls, config: Any) -> ModelShape:
        """Return the sizes that the engine needs before it builds the model."""
        decoder = config.decoder
        return ModelShape(
            num_decoder_layers=decoder.decoder_layers,
            num_kv_heads=decoder.decoder_attention_heads,
            head_dim=decoder.d_model // decoder.decoder_attention_heads,
            vocab_size=decoder.vocab_size,
            max_source_positions=num_tokens(config.encoder),
            max_target_positions=decoder.max_position_embeddings,
            encoder_takes_text=False,
        )

    @classmethod
    def longest_features(cls, config: Any) -> dict[str, Tensor]:
        """Return the largest input of the mapper."""
        return {"pixel_values": torch.zeros(image_shape(config.encoder))}

    def encode(
        self,
        encoder_input_ids: Tensor | None,
        encoder_positions: Tensor | None,
        attn_metadata: AttentionMetadata,
        **multimodal_kwargs: list[Tensor],
    ) -> Tensor:
        """pixel_values: [channels, height, width] of each new request. Returns [encoder_tokens, d_model]."""
        images = torch.stack(multimodal_kwargs["pixel_values"])
        return self.enc_to_dec_proj(self.encoder(images, attn_metadata))

    def decode(
        self,
        input_ids: Tensor,
        positions: Tensor,
        kv_caches: list[Tensor],
        attn_metadata: AttentionMetadata,
    ) -> Tensor:
        """The decoder over this step's tokens. Ids and positions: [tokens]. Returns [tokens, d_model]."""
        return self.decoder(input_ids, positions, kv_caches, attn_metadata)

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """hidden: [rows, d_model]. Returns [rows, vocab_size]."""
        return self.lm_head(hidden)
