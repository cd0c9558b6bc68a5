"""Marian (Junczys-Dowmunt et al. 2018): post-norm layers, sinusoidal positions, no norm after the embedding.

The two sides may have a vocabulary each (``share_encoder_decoder_embeddings: false``); the head has the decoder's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from transept.authoring import (
    DecoderLayers,
    EncoderLayers,
    ForConditionalGeneration,
    LayerContext,
    ModelShape,
    VocabParallelEmbedding,
    VocabParallelHead,
)


def sinusoids(num_positions: int, width: int) -> Tensor:
    """Positions as in Vaswani et al. (2017, section 3.5), but with all sines before all cosines.

    Row p is sin(p / 10000^(2i / width)) for every i, then the cosines. Returns [num_positions, width].
    """
    frequencies = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.arange(num_positions, dtype=torch.float64)[:, None] * frequencies
    table = torch.cat([angles.sin(), angles.cos()[:, : width // 2]], dim=1)  # an odd width has one sine more
    return table.to(torch.get_default_dtype())


class MarianSide(nn.Module):
    """The structure of both sides: embedded tokens plus positions, and a stack of layers."""

    positions: Tensor  # [positions, d_model]; not a weight

    def __init__(self, config: Any, embed_tokens: VocabParallelEmbedding, layers: nn.ModuleList) -> None:
        super().__init__()
        self.embed_tokens = embed_tokens
        self.scale = config.d_model**0.5 if config.scale_embedding else 1.0
        self.register_buffer("positions", sinusoids(config.max_position_embeddings, config.d_model), persistent=False)
        self.layers = layers

    def forward(self, token_ids: Tensor, positions: Tensor, *step: Any) -> Tensor:
        """token_ids, positions: [tokens]. step: further arguments of layers. Returns [tokens, d_model]."""
        x = self.embed_tokens(token_ids) * self.scale + self.positions[positions]
        return self.layers(x, *step)


class MarianMTModel(ForConditionalGeneration):
    """An encoder and a decoder over one vocabulary or two."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__(config, context)
        source = VocabParallelEmbedding(config.vocab_size, config.d_model, group=context.group)
        target = source
        if not config.share_encoder_decoder_embeddings:
            target = VocabParallelEmbedding(config.decoder_vocab_size, config.d_model, group=context.group)
        self.encoder = MarianSide(config, source, EncoderLayers.of(config, context, pre_norm=False))
        self.decoder = MarianSide(config, target, DecoderLayers.of(config, context, pre_norm=False))
        vocab_size = self.shape(config).vocab_size
        tied = target.weight if config.tie_word_embeddings else None
        self.head = VocabParallelHead(vocab_size, config.d_model, group=context.group, weight=tied)
        self.final_logits_bias = nn.Parameter(torch.zeros(1, vocab_size), requires_grad=False)

    @classmethod
    def shape(cls, config: Any) -> ModelShape:
        """The model's shape, from a transformers MarianConfig. The vocabulary is the decoder's."""
        shared = config.share_encoder_decoder_embeddings
        return ModelShape.of_decoder(
            config,
            vocab_size=config.vocab_size if shared else config.decoder_vocab_size,
            max_source_positions=config.max_position_embeddings,
            source_vocab_size=config.vocab_size,
        )

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """hidden: [rows, d_model]. Returns [rows, vocab_size]."""
        return self.head(hidden) + self.final_logits_bias
