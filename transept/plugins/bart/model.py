"""BART (Lewis et al. 2020), mBART (Liu et al. 2020), Pegasus (Zhang et al. 2020), M2M100 (Fan et al. 2020).

BART and BlenderbotSmall (Roller et al. 2020) have learned positions and post-norm layers. mBART, Pegasus and M2M100
have pre-norm layers; the positions of the last two are sinusoidal.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from transept.authoring import (
    AttentionMetadata,
    DecoderLayers,
    EncoderLayers,
    ForConditionalGeneration,
    LayerContext,
    ModelShape,
    VocabParallelEmbedding,
    VocabParallelHead,
    fairseq_sinusoids,
    replayable,
)

POSITION_OFFSET = 2  # the first two rows of the position tables belong to padding


class BartEmbedding(nn.Module):
    """Embeds tokens and learned positions, and normalises the vectors. Both sides share the token table."""

    padding_rows: ClassVar[int] = POSITION_OFFSET

    def __init__(self, config: Any, embed_tokens: VocabParallelEmbedding) -> None:
        super().__init__()
        self.embed_tokens = embed_tokens
        self.scale = config.d_model**0.5 if config.scale_embedding else 1.0
        rows = config.max_position_embeddings + self.padding_rows
        self.embed_positions = nn.Parameter(torch.empty(rows, config.d_model), requires_grad=False)
        self.layernorm_embedding = nn.LayerNorm(config.d_model)

    def forward(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        """token_ids, positions: [tokens]. Returns [tokens, d_model]."""
        x = self.embed_tokens(token_ids) * self.scale + self.embed_positions[positions + self.padding_rows]
        return self.layernorm_embedding(x)


class BlenderbotSmallEmbedding(BartEmbedding):
    """The encoder's embedding: position tables have no rows for padding."""

    padding_rows = 0


class BlenderbotSmallDecoderEmbedding(BlenderbotSmallEmbedding):
    """The decoder's embedding: positions are added to normalised vectors."""

    def forward(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        """token_ids, positions: [tokens]. Returns [tokens, d_model]."""
        x = self.embed_tokens(token_ids) * self.scale
        return self.layernorm_embedding(x) + self.embed_positions[positions]


class PegasusEmbedding(nn.Module):
    """Embeds tokens and sinusoidal positions (Vaswani et al. 2017, section 3.5), sines before cosines; no norm."""

    embed_positions: Tensor

    def __init__(self, config: Any, embed_tokens: VocabParallelEmbedding) -> None:
        super().__init__()
        self.embed_tokens = embed_tokens
        self.scale = config.d_model**0.5 if config.scale_embedding else 1.0
        self.register_buffer("embed_positions", self.positions(config), persistent=False)

    @staticmethod
    def positions(config: Any) -> Tensor:
        """Return the vectors of all positions, [max_position_embeddings, d_model]."""
        return sinusoids(config.max_position_embeddings, config.d_model)

    def forward(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        """token_ids, positions: [tokens]. Returns [tokens, d_model]."""
        return self.embed_tokens(token_ids) * self.scale + self.embed_positions[positions]


class M2M100Embedding(PegasusEmbedding):
    """PegasusEmbedding with fairseq's positions, which start after the padding token's row."""

    @staticmethod
    def positions(config: Any) -> Tensor:
        """See PegasusEmbedding.positions."""
        first = config.pad_token_id + 1
        return fairseq_sinusoids(config.max_position_embeddings, config.d_model, config.pad_token_id)[first:]


def sinusoids(num_positions: int, width: int) -> Tensor:
    """Return sin(p · 10000^(-2i / width)) for all i, then the cosines: [num_positions, width] in the default dtype."""
    frequencies = 10000.0 ** -(torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.arange(num_positions, dtype=torch.float64)[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()[:, : width // 2]], dim=1).to(torch.get_default_dtype())


class BartEncoder(nn.Module):
    """Tokens to hidden states."""

    def __init__(self, config: Any, embedding: nn.Module, pre_norm: bool, context: LayerContext) -> None:
        super().__init__()
        self.embedding = embedding
        self.layers = EncoderLayers.of(config, context, pre_norm=pre_norm)
        self.layer_norm = nn.LayerNorm(config.d_model) if pre_norm else nn.Identity()

    def forward(self, token_ids: Tensor, positions: Tensor, metadata: AttentionMetadata) -> Tensor:
        """token_ids, positions: [encoder_tokens]. Returns [encoder_tokens, d_model]."""
        return self.layer_norm(self.layers(self.embedding(token_ids, positions), metadata))


class BartDecoder(nn.Module):
    """Tokens to hidden states."""

    def __init__(
        self, config: Any, embedding: nn.Module, pre_norm: bool, context: LayerContext, **options: Any
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.layers = DecoderLayers.of(config, context, pre_norm=pre_norm, **options)
        self.layer_norm = nn.LayerNorm(config.d_model) if pre_norm else None

    def forward(self, input_ids: Tensor, positions: Tensor, *step: Any) -> Tensor:
        """input_ids, positions: [tokens]. step: further arguments of layers. Returns [tokens, d_model]."""
        x = self.embedding(input_ids, positions)
        return self.layers(x, *step, last_norm=self.layer_norm)


class BartForConditionalGeneration(ForConditionalGeneration):
    """BART and related families. In a checkpoint of the bare model, the embedding is the head."""

    embedding_class: ClassVar[type[nn.Module]] = BartEmbedding
    decoder_embedding_class: ClassVar[type[nn.Module] | None] = None  # None: the encoder's class
    pre_norm: ClassVar[bool] = False

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__(config, context)
        self.shared = VocabParallelEmbedding(config.vocab_size, config.d_model, group=context.group)
        self.encoder = self.make_encoder(config, context)
        decoder_embedding = (self.decoder_embedding_class or self.embedding_class)(config, self.shared)
        self.decoder = BartDecoder(config, decoder_embedding, self.pre_norm, context, **self.layer_options(config))
        tied = self.shared.weight if config.tie_word_embeddings else None
        self.head = VocabParallelHead(config.vocab_size, config.d_model, group=context.group, weight=tied)
        self.final_logits_bias = nn.Parameter(torch.zeros(1, config.vocab_size), requires_grad=False)

    def make_encoder(self, config: Any, context: LayerContext) -> nn.Module:
        """Make the encoder; `shared` exists."""
        return BartEncoder(config, self.embedding_class(config, self.shared), self.pre_norm, context)

    @classmethod
    def layer_options(cls, config: Any) -> dict[str, Any]:
        """Return further fields of the decoder layers' LayerConfig."""
        return {}

    @classmethod
    def shape(cls, config: Any) -> ModelShape:
        """Return the shape, from the transformers config of any of the families."""
        return ModelShape.of_decoder(config, max_source_positions=config.max_position_embeddings)

    @replayable
    def encode(
        self,
        encoder_input_ids: Tensor | None,
        encoder_positions: Tensor | None,
        attn_metadata: AttentionMetadata,
        **multimodal_kwargs: list[Tensor],
    ) -> Tensor:
        """See ForConditionalGeneration.encode; text only."""
        return self.encoder(encoder_input_ids, encoder_positions, attn_metadata)

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """hidden: [rows, d_model]. Returns [rows, vocab_size]."""
        return self.head(hidden) + self.final_logits_bias


class BlenderbotSmallForConditionalGeneration(BartForConditionalGeneration):
    """BlenderbotSmall: BART's layers, and other embeddings."""

    embedding_class = BlenderbotSmallEmbedding
    decoder_embedding_class = BlenderbotSmallDecoderEmbedding


class MBartForConditionalGeneration(BartForConditionalGeneration):
    """mBART: norms before the sublayers, and another one after the last layer of each side."""

    pre_norm = True


class PegasusForConditionalGeneration(MBartForConditionalGeneration):
    """Pegasus: mBART's layers over sinusoidal positions."""

    embedding_class = PegasusEmbedding


class M2M100ForConditionalGeneration(MBartForConditionalGeneration):
    """M2M100 and NLLB: mBART's layers over fairseq's sinusoidal positions."""

    embedding_class = M2M100Embedding
