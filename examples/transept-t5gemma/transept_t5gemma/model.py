"""T5Gemma (Zhang et al. 2025): two stacks of Gemma 2's layers, the decoder's with cross-attention.

Norms are before and after each sublayer, positions are rotary, scores and logits have a soft cap, and every other layer
has a window. The two sides may have different sizes.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from transept.authoring import (
    CheckpointError,
    DecoderLayer,
    DecoderLayers,
    EncoderLayer,
    EncoderLayers,
    ForConditionalGeneration,
    LayerConfig,
    LayerContext,
    ModelShape,
    RMSNorm,
    VocabParallelEmbedding,
    VocabParallelHead,
)


def layer_configs(side: Any, encoder_hidden_size: int | None = None) -> list[LayerConfig]:
    """Return the settings of one side's layers; ``side.layer_types`` says which have a window.

    Raises CheckpointError for scaled rotary positions.
    """
    rope = side.rope_parameters
    if rope["rope_type"] != "default":
        raise CheckpointError(f'rope_type must be "default", as in every checkpoint of the family, not {rope!r}')
    config = LayerConfig(
        side.hidden_size,
        side.num_attention_heads,
        side.intermediate_size,
        side.hidden_activation,
        pre_norm=True,
        norm=partial(RMSNorm, eps=side.rms_norm_eps, weight_offset=1.0),
        gated=True,
        num_kv_heads=side.num_key_value_heads,
        head_dim=side.head_dim,
        scale=side.query_pre_attn_scalar**-0.5,
        bias=False,
        sandwich_norm=True,
        softcap=side.attn_logit_softcapping,
        rotary=rope["rope_theta"],
        encoder_hidden_size=encoder_hidden_size,
    )
    windows = {"sliding_attention": side.sliding_window, "full_attention": None}
    return [replace(config, window=windows[layer_type]) for layer_type in side.layer_types]


class T5GemmaSide(nn.Module):
    """The structure of both sides: scaled embeddings, a stack of layers, and a norm."""

    def __init__(self, side: Any, layers: nn.ModuleList, context: LayerContext) -> None:
        super().__init__()
        self.embed_tokens = VocabParallelEmbedding(side.vocab_size, side.hidden_size, group=context.group)
        self.scale = side.hidden_size**0.5
        self.layers = layers
        self.norm = RMSNorm(side.hidden_size, side.rms_norm_eps, weight_offset=1.0)

    def forward(self, token_ids: Tensor, positions: Tensor, *step: Any) -> Tensor:
        """token_ids, positions: [tokens]. step: further arguments of layers. Returns [tokens, hidden].

        The embedding's scale is rounded to its dtype, as in the training of Gemma.
        """
        x = self.embed_tokens(token_ids)
        x = x * torch.full((), self.scale, dtype=x.dtype, device=x.device)
        return self.norm(self.layers(x, *step, positions=positions))


class T5GemmaForConditionalGeneration(ForConditionalGeneration):
    """The decoder's vocabulary matrix is the head's as well, if the config ties them."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__(config, context)
        encoder, decoder = config.encoder, config.decoder
        layers = EncoderLayers(EncoderLayer(each, context) for each in layer_configs(encoder))
        self.encoder = T5GemmaSide(encoder, layers, context)
        decoder_layers = DecoderLayers(
            DecoderLayer(each, context) for each in layer_configs(decoder, encoder.hidden_size)
        )
        self.decoder = T5GemmaSide(decoder, decoder_layers, context)
        tied = self.decoder.embed_tokens.weight if config.tie_word_embeddings else None
        self.head = VocabParallelHead(decoder.vocab_size, decoder.hidden_size, group=context.group, weight=tied)
        self.final_softcap = decoder.final_logit_softcapping

    @classmethod
    def shape(cls, config: Any) -> ModelShape:
        """From a transformers T5GemmaConfig."""
        all_slide = set(config.decoder.layer_types) == {"sliding_attention"}
        return ModelShape(
            num_decoder_layers=config.decoder.num_hidden_layers,
            num_kv_heads=config.decoder.num_key_value_heads,
            num_heads=config.decoder.num_attention_heads,
            head_dim=config.decoder.head_dim,
            vocab_size=config.decoder.vocab_size,
            max_source_positions=config.encoder.max_position_embeddings,
            max_target_positions=config.decoder.max_position_embeddings,
            window=config.decoder.sliding_window if all_slide else None,
        )

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """hidden: [rows, hidden]. Returns [rows, vocab_size]."""
        logits = self.head(hidden)
        cap = self.final_softcap
        return logits if cap is None else cap * torch.tanh(logits / cap)
