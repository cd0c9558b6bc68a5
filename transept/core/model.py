"""ForConditionalGeneration: the base class of every encoder/decoder model.

Plugins subclass it, the model runner runs it.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from transept.core.attention.layer import LayerContext
from transept.core.attention.metadata import AttentionMetadata
from transept.errors import CheckpointError, PluginError


@dataclass(frozen=True)
class ModelShape:
    """What the engine must know of a model to feed it and to size its cache.

    num_decoder_layers, num_kv_heads, head_dim: shape of the cache; one per decoder layer serves both attentions.
    max_source_positions, max_target_positions: longest encoder and decoder sequence in tokens; None: no bound.
    encoder_takes_text: whether the encoder reads tokens; Whisper's reads audio only.
    num_heads: of the queries; None: as many as num_kv_heads.

    Raises CheckpointError for a number that is no integer of at least 1.
    """

    num_decoder_layers: int
    num_kv_heads: int
    head_dim: int
    vocab_size: int
    max_source_positions: int | None
    max_target_positions: int | None
    encoder_takes_text: bool = True
    num_heads: int | None = None

    def __post_init__(self) -> None:
        optional = ("max_source_positions", "max_target_positions", "num_heads")
        for name in ("num_decoder_layers", "num_kv_heads", "head_dim", "vocab_size", *optional):
            value = getattr(self, name)
            if value is None and name in optional:
                continue
            if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
                raise CheckpointError(f"{name} must be an integer of at least 1, not {value!r}")


class ForConditionalGeneration(nn.Module):
    """An encoder/decoder model over flattened tokens.

    compute_dtype: of weights and activations. The worker builds models with it as PyTorch's default.

    A subclass is built as ``Model(config, context)`` and creates its parameters empty: the loader fills them. The
    runner calls `encode` when a step has newcomers, then `decode` once for everyone, then `compute_logits` for the
    rows that need a token.
    """

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__()
        self.config = config
        self.context = context
        self.compute_dtype = torch.get_default_dtype()

    @classmethod
    @abstractmethod
    def shape(cls, config: Any) -> ModelShape:
        """The model's shape, from its config alone."""

    @classmethod
    def longest_features(cls, config: Any) -> dict[str, Tensor]:
        """Features of the longest input, as the input mapper would make them, of any content; empty for text.

        The engine measures with them how much of a GPU's memory a step takes. Raises PluginError where an encoder takes
        no text and this method is not overridden.
        """
        if not cls.shape(config).encoder_takes_text:
            raise PluginError(
                f"{cls.__name__} does not say how large its features are, so that the memory of a step cannot be "
                f"measured. Give kv_cache_bytes, or have its plugin override longest_features"
            )
        return {}

    @abstractmethod
    def encode(
        self,
        encoder_input_ids: Tensor | None,
        encoder_positions: Tensor | None,
        attn_metadata: AttentionMetadata,
        **multimodal_kwargs: list[Tensor],
    ) -> Tensor:
        """Run the encoder over newcomers.

        encoder_input_ids, encoder_positions: [encoder_tokens] int64; None for multimodal input.
        multimodal_kwargs: what the input mapper returned, a list with one tensor a newcomer for each keyword, those of
            floating dtypes in compute_dtype.
        Returns hidden states [encoder_tokens, hidden], newcomers one after the other, as many rows of each as its
        mapper declared; with other shapes the step raises PluginError.
        """

    @abstractmethod
    def decode(
        self,
        input_ids: Tensor,
        positions: Tensor,
        encoder_hidden_states: Tensor | None,
        kv_caches: list[Tensor],
        attn_metadata: AttentionMetadata,
    ) -> Tensor:
        """Run the decoder over all decoder tokens of the step.

        input_ids, positions: [num_tokens] int64. encoder_hidden_states: the newcomers', or None when there are none.
        kv_caches: one a decoder layer, [2, num_blocks, block_size, num_kv_heads, head_dim].
        Returns hidden states [num_tokens, hidden].
        """

    @abstractmethod
    def compute_logits(self, hidden: Tensor) -> Tensor:
        """hidden: [rows, hidden]. Returns logits [rows, vocab_size]."""
