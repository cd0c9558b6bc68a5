"""SeamlessM4T's model for speech to text: the conformer and adapter of transformers, and a pre-norm text decoder."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from transept.authoring import (
    AttentionMetadata,
    DecoderLayers,
    ForConditionalGeneration,
    LayerContext,
    ModelShape,
    VocabParallelEmbedding,
    VocabParallelHead,
    fairseq_sinusoids,
    transformers_encoder,
)
from transept_seamless.audio import LONGEST, num_tokens

ENCODERS = {
    "seamless_m4t": "transformers.models.seamless_m4t.modeling_seamless_m4t:SeamlessM4TSpeechEncoder",
    "seamless_m4t_v2": "transformers.models.seamless_m4t_v2.modeling_seamless_m4t_v2:SeamlessM4Tv2SpeechEncoder",
}  # by model_type


class Decoder(nn.Module):
    """Layers after embedded tokens with sinusoidal positions; the padding token has no position."""

    positions: Tensor  # [rows, hidden]; not a weight

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__()
        self.padding = config.pad_token_id
        self.scale = config.hidden_size**0.5 if config.scale_embedding else 1.0
        self.embed_tokens = VocabParallelEmbedding(config.vocab_size, config.hidden_size, group=context.group)
        table = fairseq_sinusoids(config.max_position_embeddings, config.hidden_size, self.padding)
        self.register_buffer("positions", table, persistent=False)
        self.layers = DecoderLayers.of(config, context, pre_norm=True)
        self.layer_norm = nn.LayerNorm(config.hidden_size)

    def forward(self, input_ids: Tensor, positions: Tensor, *step: Any) -> Tensor:
        """input_ids, positions: [tokens]. step: further arguments of layers. Returns [tokens, hidden]."""
        rows = torch.where(input_ids == self.padding, self.padding, positions + self.padding + 1)
        x = self.embed_tokens(input_ids) * self.scale + self.positions[rows]
        return self.layers(x, *step, last_norm=self.layer_norm)


class SeamlessForSpeechToText(ForConditionalGeneration):
    """Both generations, which differ in the attention and the convolutions of the encoder."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__(config, context)
        self.encoder = transformers_encoder(config, model_class=ENCODERS[config.model_type])
        self.decoder = Decoder(config, context)
        tied = self.decoder.embed_tokens.weight if config.tie_word_embeddings else None
        self.head = VocabParallelHead(config.vocab_size, config.hidden_size, group=context.group, weight=tied)

    @classmethod
    def shape(cls, config: Any) -> ModelShape:
        """From a transformers SeamlessM4TConfig or SeamlessM4Tv2Config."""
        return ModelShape.of_decoder(config, max_source_positions=num_tokens(LONGEST, config), encoder_takes_text=False)

    @classmethod
    def longest_features(cls, config: Any) -> dict[str, Tensor]:
        """Frames without anything in them."""
        frames = torch.zeros(LONGEST, config.feature_projection_input_dim)
        return {"input_features": frames, "attention_mask": torch.ones(LONGEST, dtype=torch.int64)}

    def encode(
        self,
        encoder_input_ids: Tensor | None,
        encoder_positions: Tensor | None,
        attn_metadata: AttentionMetadata,
        **multimodal_kwargs: list[Tensor],
    ) -> Tensor:
        """input_features: a list of [pairs, 2 * bins], attention_mask: of [pairs]. Returns [encoder_tokens, hidden]."""
        given = zip(multimodal_kwargs["input_features"], multimodal_kwargs["attention_mask"], strict=True)
        return torch.cat([self.encode_one(features, mask) for features, mask in given])

    def encode_one(self, features: Tensor, mask: Tensor) -> Tensor:
        """One recording, as above. Returns its tokens, without one that a masked pair alone has made."""
        encoded = self.encoder(input_features=features[None], attention_mask=mask[None]).last_hidden_state
        return encoded[0, : num_tokens(int(mask.sum()), self.config)]
