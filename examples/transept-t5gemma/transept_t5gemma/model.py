"""T5Gemma (Zhang et al. 2025): two stacks of Gemma 2's layers, the decoder's with cross-attention.

Norms stand before and after each sublayer, positions are rotary, scores and logits have a soft cap, and every other
layer sees a window of tokens only. The two sides may have any sizes each.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from transept.authoring import (
    AttentionMetadata,
    CheckpointError,
    DecoderLayer,
    EncoderLayer,
    ForConditionalGeneration,
    LayerConfig,
    LayerContext,
    ModelShape,
    RMSNorm,
    VocabParallelEmbedding,
    VocabParallelHead,
)


def layer_configs(side: Any, encoder_hidden_size: int | None = None) -> list[LayerConfig]:
    """The layers of one side: ``side.layer_types`` says which of them have a window.

    Raises CheckpointError for rotary positions that are stretched.
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
    """What encoder and decoder share: scaled embeddings, a stack of layers, a norm at its end."""

    def __init__(self, side: Any, layers: list[nn.Module], context: LayerContext) -> None:
        super().__init__()
        self.embed_tokens = VocabParallelEmbedding(side.vocab_size, side.hidden_size, group=context.group)
        self.scale = side.hidden_size**0.5
        self.layers = nn.ModuleList(layers)
        self.norm = RMSNorm(side.hidden_size, side.rms_norm_eps, weight_offset=1.0)

    def embed(self, token_ids: Tensor | None) -> Tensor:
        """token_ids: [tokens]. Returns [tokens, hidden]; the scale is rounded to its dtype, as Gemma was trained."""
        x = self.embed_tokens(token_ids)
        return x * torch.full((), self.scale, dtype=x.dtype, device=x.device)


class T5GemmaForConditionalGeneration(ForConditionalGeneration):
    """The decoder's vocabulary matrix is the head's as well, if the config ties them."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__(config, context)
        encoder, decoder = config.encoder, config.decoder
        self.encoder = T5GemmaSide(encoder, [EncoderLayer(each, context) for each in layer_configs(encoder)], context)
        decoder_layers = [DecoderLayer(each, context) for each in layer_configs(decoder, encoder.hidden_size)]
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

    def encode(
        self,
        encoder_input_ids: Tensor | None,
        encoder_positions: Tensor | None,
        attn_metadata: AttentionMetadata,
        **multimodal_kwargs: list[Tensor],
    ) -> Tensor:
        """See ForConditionalGeneration.encode; text only."""
        x = self.encoder.embed(encoder_input_ids)
        for layer in self.encoder.layers:
            x = layer(x, attn_metadata, positions=encoder_positions)
        return self.encoder.norm(x)

    def decode(
        self,
        input_ids: Tensor,
        positions: Tensor,
        kv_caches: list[Tensor],
        attn_metadata: AttentionMetadata,
    ) -> Tensor:
        """See ForConditionalGeneration.decode."""
        x = self.decoder.embed(input_ids)
        for layer, kv_cache in zip(self.decoder.layers, kv_caches, strict=True):
            x = layer(x, kv_cache, attn_metadata, positions=positions)
        return self.decoder.norm(x)

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """hidden: [rows, hidden]. Returns [rows, vocab_size]."""
        logits = self.head(hidden)
        cap = self.final_softcap
        return logits if cap is None else cap * torch.tanh(logits / cap)
