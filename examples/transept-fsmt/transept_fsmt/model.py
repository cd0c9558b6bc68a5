"""FSMT (Ng et al. 2019): post-norm layers over sinusoidal positions, and a vocabulary for each side.

Where ``tie_word_embeddings`` is set, one matrix is both embeddings and the head (allenai/wmt16-*).
"""

from __future__ import annotations

import math
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


def sinusoids(config: Any) -> Tensor:
    """Tensor2tensor's positions, all sines before all cosines, counted from the row after the padding token's.

    Returns [max_position_embeddings, d_model], computed in float32 as transformers does.
    """
    half, first = config.d_model // 2, config.pad_token_id + 1
    frequencies = torch.exp(torch.arange(half, dtype=torch.float32) * -(math.log(10000) / (half - 1)))
    places = torch.arange(first, first + config.max_position_embeddings, dtype=torch.float32)
    angles = places[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=1).to(torch.get_default_dtype())


class FSMTSide(nn.Module):
    """What encoder and decoder share: embedded tokens plus positions, and a stack of layers."""

    positions: Tensor  # [positions, d_model]; not a weight

    def __init__(self, config: Any, embed_tokens: VocabParallelEmbedding, layers: nn.ModuleList) -> None:
        super().__init__()
        self.embed_tokens = embed_tokens
        self.scale = config.d_model**0.5 if config.scale_embedding else 1.0
        self.register_buffer("positions", sinusoids(config), persistent=False)
        self.layers = layers

    def embed(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        """token_ids, positions: [tokens]. Returns [tokens, d_model]."""
        return self.embed_tokens(token_ids) * self.scale + self.positions[positions]


class FSMTForConditionalGeneration(ForConditionalGeneration):
    """An encoder over the source's vocabulary and a decoder over the target's."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__(config, context)
        target = VocabParallelEmbedding(config.tgt_vocab_size, config.d_model, group=context.group)
        source = target
        if not config.tie_word_embeddings:
            source = VocabParallelEmbedding(config.src_vocab_size, config.d_model, group=context.group)
        activation = config.activation_function
        layer = LayerConfig(
            config.d_model, config.encoder_attention_heads, config.encoder_ffn_dim, activation, pre_norm=False
        )
        encoder_layers = nn.ModuleList(EncoderLayer(layer, context) for _ in range(config.encoder_layers))
        self.encoder = FSMTSide(config, source, encoder_layers)
        layer = LayerConfig(
            config.d_model, config.decoder_attention_heads, config.decoder_ffn_dim, activation, pre_norm=False
        )
        decoder_layers = DecoderLayers(DecoderLayer(layer, context) for _ in range(config.decoder_layers))
        self.decoder = FSMTSide(config, target, decoder_layers)
        tied = target.weight if config.tie_word_embeddings else None
        self.head = VocabParallelHead(config.tgt_vocab_size, config.d_model, group=context.group, weight=tied)

    @classmethod
    def shape(cls, config: Any) -> ModelShape:
        """The model's shape, from a transformers FSMTConfig."""
        return ModelShape.of_decoder(
            config,
            vocab_size=config.tgt_vocab_size,
            max_source_positions=config.max_position_embeddings,
            source_vocab_size=config.src_vocab_size,
        )

    def encode(
        self,
        encoder_input_ids: Tensor | None,
        encoder_positions: Tensor | None,
        attn_metadata: AttentionMetadata,
        **multimodal_kwargs: list[Tensor],
    ) -> Tensor:
        """See ForConditionalGeneration.encode; text only."""
        x = self.encoder.embed(encoder_input_ids, encoder_positions)
        for layer in self.encoder.layers:
            x = layer(x, attn_metadata)
        return x

    def decode(
        self,
        input_ids: Tensor,
        positions: Tensor,
        kv_caches: list[Tensor],
        attn_metadata: AttentionMetadata,
    ) -> Tensor:
        """See ForConditionalGeneration.decode."""
        x = self.decoder.embed(input_ids, positions)
        hidden: Tensor = self.decoder.layers(x, kv_caches, attn_metadata)
        return hidden
