"""Pegasus-X (Phang et al. 2022) and BigBird-Pegasus (Zaheer et al. 2020), for long documents.

Their encoders, whose attention is local with a few global tokens, are computed by transformers.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from transept.authoring import AttentionMetadata, LayerContext, VocabParallelEmbedding, transformers_encoder
from transept.plugins.bart.model import MBartForConditionalGeneration, PegasusEmbedding

SLOWEST = 10_000.0


class ScaledEmbedding(nn.Module):
    """The table that both sides share, times the encoder's scale."""

    def __init__(self, config: Any, embed_tokens: VocabParallelEmbedding) -> None:
        super().__init__()
        self.embed_tokens = embed_tokens
        self.scale = config.d_model**0.5 if config.scale_embedding else 1.0

    def forward(self, token_ids: Tensor) -> Tensor:
        """token_ids: of any shape. Returns [..., d_model]."""
        return self.embed_tokens(token_ids) * self.scale


class LongForConditionalGeneration(MBartForConditionalGeneration):
    """The parts that both families share: pre-norm layers without biases in attention, and transformers' encoder."""

    encoder_class: str

    def make_encoder(self, config: Any, context: LayerContext) -> nn.Module:
        """See BartForConditionalGeneration.make_encoder."""
        encoder = transformers_encoder(config, model_class=self.encoder_class)
        encoder.embed_tokens = ScaledEmbedding(config, self.shared)
        return encoder

    @classmethod
    def layer_options(cls, config: Any) -> dict[str, Any]:
        """See BartForConditionalGeneration.layer_options."""
        return {"qkv_bias": False, "out_bias": False}

    def encode(
        self,
        encoder_input_ids: Tensor | None,
        encoder_positions: Tensor | None,
        attn_metadata: AttentionMetadata,
        **multimodal_kwargs: list[Tensor],
    ) -> Tensor:
        """See ForConditionalGeneration.encode; one text after the other."""
        assert encoder_input_ids is not None
        texts = encoder_input_ids.split(attn_metadata.encoder_lens)
        return torch.cat([self.encode_text(ids) for ids in texts])

    def encode_text(self, ids: Tensor) -> Tensor:
        """ids: [tokens]. Returns [tokens, d_model]."""
        hidden: Tensor = self.encoder(input_ids=ids[None]).last_hidden_state[0]
        return hidden


class PegasusXEmbedding(PegasusEmbedding):
    """PegasusEmbedding with Tensor2Tensor's frequencies, the lowest of which is 1 / 10,000."""

    @staticmethod
    def positions(config: Any) -> Tensor:
        """See PegasusEmbedding.positions."""
        half = config.d_model // 2
        frequencies = torch.exp(torch.arange(half).float() * -(math.log(SLOWEST) / (half - 1)))
        angles = torch.arange(config.max_position_embeddings)[:, None] * frequencies
        return torch.cat([angles.sin(), angles.cos()], dim=1).to(torch.get_default_dtype())


class PegasusXForConditionalGeneration(LongForConditionalGeneration):
    """Pegasus-X: attention in blocks, and to learned global vectors."""

    embedding_class = PegasusXEmbedding
    encoder_class = "transformers.models.pegasus_x.modeling_pegasus_x:PegasusXEncoder"


class LearnedEmbedding(ScaledEmbedding):
    """Embeds tokens and learned positions, without a norm."""

    def __init__(self, config: Any, embed_tokens: VocabParallelEmbedding) -> None:
        super().__init__(config, embed_tokens)
        table = torch.empty(config.max_position_embeddings, config.d_model)
        self.embed_positions = nn.Parameter(table, requires_grad=False)

    def forward(self, token_ids: Tensor, positions: Tensor) -> Tensor:  # type: ignore[override]
        """token_ids, positions: [tokens]. Returns [tokens, d_model]."""
        return super().forward(token_ids) + self.embed_positions[positions]


class BigBirdPegasusForConditionalGeneration(LongForConditionalGeneration):
    """BigBird-Pegasus: block-sparse attention, or full attention for texts that are too short for it."""

    embedding_class = LearnedEmbedding
    encoder_class = "transformers.models.bigbird_pegasus.modeling_bigbird_pegasus:BigBirdPegasusEncoder"

    @classmethod
    def layer_options(cls, config: Any) -> dict[str, Any]:
        """See BartForConditionalGeneration.layer_options."""
        return {"qkv_bias": config.use_bias, "out_bias": config.use_bias}

    def encode_text(self, ids: Tensor) -> Tensor:
        """ids: [tokens]. Returns [tokens, d_model]."""
        self.encoder.set_attention_type(self.config.attention_type)  # transformers leaves it full after a short text
        return super().encode_text(ids)
