"""ForConditionalGeneration: the base class of every encoder/decoder model.

Plugins subclass it, the model runner runs it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from transept.core.attention.attention import LayerContext
from transept.core.attention.metadata import AttentionMetadata
from transept.core.layers.projected_attention import CrossAttention, MakesKeysAndValues
from transept.core.model_shape import ModelShape
from transept.errors import PluginError

EncodeT = TypeVar("EncodeT")


def replayable(encode: EncodeT) -> EncodeT:
    """Mark an `encode` of text that a GPU may replay for other texts than those for which it was recorded.

    It gives each token its row by the tensors that it gets alone, and hands ``attn_metadata`` to attention layers and
    reads nothing in it. A method that overrides it is not marked.
    """
    encode.is_replayable = True  # type: ignore[attr-defined]
    return encode


class ForConditionalGeneration(nn.Module):
    """An encoder/decoder model over flattened tokens.

    compute_dtype: of weights and activations. The worker builds models with it as PyTorch's default.

    A subclass is built as ``Model(config, context)`` and creates its parameters empty: the loader fills them. The
    runner calls `encode` for new inputs and writes what `cross_attentions` make of the output into the cache. Then it
    calls `decode` once for everyone, and `compute_logits` for the rows that need a token. A subclass that has
    `encoder`, `decoder` or `head` need not write the method that calls it.
    """

    encoder: Any  # set by subclasses that do not override encode
    decoder: Any  # set by subclasses that do not override decode
    head: Any  # set by subclasses that do not override compute_logits

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

        For an encoder that reads text beside them also ``encoder_input_ids``, int64 [max_source_positions].

        The engine measures with them how much of a GPU's memory a step takes. Raises PluginError where an encoder takes
        no text and this method is not overridden.
        """
        if not cls.shape(config).encoder_takes_text:
            raise PluginError(
                f"{cls.__name__} does not say how large its features are, so that the memory of a step cannot be "
                f"measured. Give kv_cache_bytes, or have its plugin override longest_features"
            )
        return {}

    def encode(
        self,
        encoder_input_ids: Tensor | None,
        encoder_positions: Tensor | None,
        attn_metadata: AttentionMetadata,
        **multimodal_kwargs: list[Tensor],
    ) -> Tensor:
        """Run the encoder over some inputs of a step.

        encoder_input_ids, encoder_positions: [encoder_tokens] int64; None for multimodal input without text. With text
            beside it, an id is there for every token, a placeholder where the data stand.
        multimodal_kwargs: what the input mapper returned, a list with one tensor an input for each keyword, those of
            floating dtypes in compute_dtype.
        Returns hidden states [encoder_tokens, hidden], inputs one after the other, as many rows of each as its
        mapper declared; with other shapes the step raises PluginError. Here those of `encoder`, which is given all of
        these.
        """
        return self.encoder(encoder_input_ids, encoder_positions, attn_metadata, **multimodal_kwargs)

    def cross_attentions(self) -> Sequence[MakesKeysAndValues | None]:
        """What makes keys and values of the encoder's output, one for each decoder layer, in their order.

        Here every CrossAttention of the model, in the order of its modules. A model with cross-attention of its own
        overrides this; None stands for a decoder layer without one.
        """
        return [module for module in self.modules() if isinstance(module, CrossAttention)]

    def decode(
        self,
        input_ids: Tensor,
        positions: Tensor,
        kv_caches: list[Tensor],
        attn_metadata: AttentionMetadata,
    ) -> Tensor:
        """Run the decoder over all decoder tokens of the step.

        input_ids, positions: [num_tokens] int64. kv_caches: one a decoder layer, [2, num_blocks, block_size,
        num_kv_heads, head_dim], with the keys and values of every request's encoder output.
        Returns hidden states [num_tokens, hidden], here those of `decoder`, which is given all of these.
        """
        return self.decoder(input_ids, positions, kv_caches, attn_metadata)

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """hidden: [rows, hidden]. Returns logits [rows, vocab_size], here those of `head`."""
        return self.head(hidden)
