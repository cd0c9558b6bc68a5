"""BART (Lewis et al. 2020), mBART (Liu et al. 2020), Pegasus (Zhang et al. 2020), M2M100 (Fan et al. 2020): one kin.

BART has learned positions and post-norm layers, and so has BlenderbotSmall (Roller et al. 2020). mBART's layers are
pre-norm, and so are those of Pegasus and M2M100, whose positions are sinusoidal.
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
    """Tokens and learned positions to normalised vectors. The token table is shared by both sides."""

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
    """The encoder's: position tables have no rows for padding."""

    padding_rows = 0


class BlenderbotSmallDecoderEmbedding(BlenderbotSmallEmbedding):
    """The decoder's: positions are added to vectors that are normalised already."""

    def forward(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        """token_ids, positions: [tokens]. Returns [tokens, d_model]."""
        x = self.embed_tokens(token_ids) * self.scale
        return self.layernorm_embedding(x) + self.embed_positions[positions]


class PegasusEmbedding(nn.Module):
    """Tokens and sinusoidal positions (Vaswani et al. 2017, section 3.5), sines before cosines, without a norm."""

    embed_positions: Tensor

    def __init__(self, config: Any, embed_tokens: VocabParallelEmbedding) -> None:
        super().__init__()
        self.embed_tokens = embed_tokens
        self.scale = config.d_model**0.5 if config.scale_embedding else 1.0
        self.register_buffer("embed_positions", self.positions(config), persistent=False)

    @staticmethod
    def positions(config: Any) -> Tensor:
        """The vectors of all positions, [max_position_embeddings, d_model]."""
        return sinusoids(config.max_position_embeddings, config.d_model)

    def forward(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        """token_ids, positions: [tokens]. Returns [tokens, d_model]."""
        return self.embed_tokens(token_ids) * self.scale + self.embed_positions[positions]


class M2M100Embedding(PegasusEmbedding):
    """The same, but positions count from the row after the padding token's, and wavelengths end at 10000 · 2π."""

    @staticmethod
    def positions(config: Any) -> Tensor:
        """As PegasusEmbedding's."""
        first = config.pad_token_id + 1
        return fairseq_sinusoids(config.max_position_embeddings, config.d_model, config.pad_token_id)[first:]


def sinusoids(num_positions: int, width: int) -> Tensor:
    """sin(p · 10000^(-2i / width)) for all i, then the cosines: [num_positions, width] in the default dtype."""
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

    def __init__(self, config: Any, embedding: nn.Module, pre_norm: bool, context: LayerContext) -> None:
        super().__init__()
        self.embedding = embedding
        self.layers = DecoderLayers.of(config, context, pre_norm=pre_norm)
        self.layer_norm = nn.LayerNorm(config.d_model) if pre_norm else None

    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor,
        kv_caches: list[Tensor],
        metadata: AttentionMetadata,
    ) -> Tensor:
        """input_ids, positions: [tokens]. Returns [tokens, d_model]."""
        x = self.embedding(input_ids, positions)
        return self.layers(x, kv_caches, metadata, last_norm=self.layer_norm)


class BartForConditionalGeneration(ForConditionalGeneration):
    """BART and its kin; a checkpoint of the bare model serves as well, its head being the embedding."""

    embedding_class: ClassVar[type[nn.Module]] = BartEmbedding
    decoder_embedding_class: ClassVar[type[nn.Module] | None] = None  # where it is not the encoder's
    pre_norm: ClassVar[bool] = False

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__(config, context)
        self.shared = VocabParallelEmbedding(config.vocab_size, config.d_model, group=context.group)
        encoder_embedding = self.embedding_class(config, self.shared)
        self.encoder = BartEncoder(config, encoder_embedding, self.pre_norm, context)
        decoder_embedding = (self.decoder_embedding_class or self.embedding_class)(config, self.shared)
        self.decoder = BartDecoder(config, decoder_embedding, self.pre_norm, context)
        tied = self.shared.weight if config.tie_word_embeddings else None
        self.head = VocabParallelHead(config.vocab_size, config.d_model, group=context.group, weight=tied)
        self.final_logits_bias = nn.Parameter(torch.zeros(1, config.vocab_size), requires_grad=False)

    @classmethod
    def shape(cls, config: Any) -> ModelShape:
        """The model's shape, from the transformers config of any of the families."""
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
    """mBART: norms before the sublayers, and one more after the last layer of each side."""

    pre_norm = True


class PegasusForConditionalGeneration(MBartForConditionalGeneration):
    """Pegasus: mBART's layers over sinusoidal positions."""

    embedding_class = PegasusEmbedding


class M2M100ForConditionalGeneration(MBartForConditionalGeneration):
    """M2M100 and NLLB: mBART's layers over sinusoidal positions of another formula."""

    embedding_class = M2M100Embedding
