"""FSMT (Ng et al. 2019): post-norm layers over sinusoidal positions, and a vocabulary for each side.

With ``tie_word_embeddings``, one matrix is both embeddings and the head (allenai/wmt16-*).
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from transept.authoring import (
    DecoderLayers,
    EncoderLayers,
    ForConditionalGeneration,
    LayerContext,
    ModelShape,
    VocabParallelEmbedding,
    VocabParallelHead,
    fairseq_sinusoids,
)


class FSMTSide(nn.Module):
    """The structure of both sides: embedded tokens plus positions, and a stack of layers."""

    positions: Tensor  # [positions, d_model]; not a weight

    def __init__(self, config: Any, embed_tokens: VocabParallelEmbedding, layers: nn.ModuleList) -> None:
        super().__init__()
        self.embed_tokens = embed_tokens
        self.scale = config.d_model**0.5 if config.scale_embedding else 1.0
        table = fairseq_sinusoids(config.max_position_embeddings, config.d_model, config.pad_token_id)
        self.register_buffer("positions", table[config.pad_token_id + 1 :], persistent=False)
        self.layers = layers

    def forward(self, token_ids: Tensor, positions: Tensor, *step: Any) -> Tensor:
        """token_ids, positions: [tokens]. step: further arguments of layers. Returns [tokens, d_model]."""
        x = self.embed_tokens(token_ids) * self.scale + self.positions[positions]
        return self.layers(x, *step)


class FSMTForConditionalGeneration(ForConditionalGeneration):
    """An encoder over the source's vocabulary and a decoder over the target's."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__(config, context)
        target = VocabParallelEmbedding(config.tgt_vocab_size, config.d_model, group=context.group)
        source = target
        if not config.tie_word_embeddings:
            source = VocabParallelEmbedding(config.src_vocab_size, config.d_model, group=context.group)
        self.encoder = FSMTSide(config, source, EncoderLayers.of(config, context, pre_norm=False))
        self.decoder = FSMTSide(config, target, DecoderLayers.of(config, context, pre_norm=False))
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
