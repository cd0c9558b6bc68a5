"""LED (Beltagy et al. 2020): Longformer's encoder, which transformers computes, and BART's decoder."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transept.authoring import (
    AttentionMetadata,
    DecoderLayers,
    ForConditionalGeneration,
    LayerContext,
    ModelShape,
    VocabParallelEmbedding,
    VocabParallelHead,
    transformers_encoder,
)

ENCODER = "transformers.models.led.modeling_led:LEDEncoder"


class LEDDecoder(nn.Module):
    """Tokens and learned positions to hidden states. A norm comes after each sublayer."""

    def __init__(self, config: Any, embed_tokens: VocabParallelEmbedding, context: LayerContext) -> None:
        super().__init__()
        self.embed_tokens = embed_tokens
        self.embed_positions = nn.Embedding(config.max_decoder_position_embeddings, config.d_model)
        self.layernorm_embedding = nn.LayerNorm(config.d_model)
        self.layers = DecoderLayers.of(config, context, pre_norm=False)

    def forward(self, input_ids: Tensor, positions: Tensor, *step: Any) -> Tensor:
        """input_ids, positions: [tokens]. step: further arguments of layers. Returns [tokens, d_model]."""
        x = self.layernorm_embedding(self.embed_tokens(input_ids) + self.embed_positions(positions))
        return self.layers(x, *step)


class LEDForConditionalGeneration(ForConditionalGeneration):
    """An encoder with a sliding window and global attention of some tokens, and a decoder over one vocabulary."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__(config, context)
        self.shared = VocabParallelEmbedding(config.vocab_size, config.d_model, group=context.group)
        self.encoder = transformers_encoder(config, model_class=ENCODER)
        self.encoder.set_input_embeddings(self.shared)
        self.decoder = LEDDecoder(config, self.shared, context)
        tied = self.shared.weight if config.tie_word_embeddings else None
        self.head = VocabParallelHead(config.vocab_size, config.d_model, group=context.group, weight=tied)
        self.final_logits_bias = nn.Parameter(torch.zeros(1, config.vocab_size), requires_grad=False)

    @classmethod
    def shape(cls, config: Any) -> ModelShape:
        """The model's shape, from a transformers LEDConfig."""
        return ModelShape.of_decoder(
            config,
            max_source_positions=config.max_encoder_position_embeddings,
            max_target_positions=config.max_decoder_position_embeddings,
        )

    def encode(
        self,
        encoder_input_ids: Tensor | None,
        encoder_positions: Tensor | None,
        attn_metadata: AttentionMetadata,
        **encoder_inputs: list[Tensor],
    ) -> Tensor:
        """See ForConditionalGeneration.encode. global_attention: each text's mask, [tokens].

        One text after the other, since each is padded to whole windows.
        """
        assert encoder_input_ids is not None
        texts, masks = encoder_input_ids.split(attn_metadata.encoder_lens), encoder_inputs["global_attention"]
        return torch.cat([self.encode_one(ids, mask) for ids, mask in zip(texts, masks, strict=True)])

    def encode_one(self, token_ids: Tensor, global_attention: Tensor) -> Tensor:
        """token_ids, global_attention: int64 [tokens]. Returns [tokens, d_model]."""
        padding = (0, -len(token_ids) % max(self.encoder.config.attention_window))
        ids = F.pad(token_ids, padding, value=self.config.pad_token_id)
        attends = F.pad(1 + global_attention, padding)  # 0: not at all, 1: in the window, 2: everywhere
        return self.encoder(ids[None], attends[None]).last_hidden_state[0, : len(token_ids)]

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """hidden: [rows, d_model]. Returns [rows, vocab_size]."""
        return self.head(hidden) + self.final_logits_bias
