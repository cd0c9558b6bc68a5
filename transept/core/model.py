"""ForConditionalGeneration: the base class of every encoder/decoder model. Plugins subclass it; runners call it."""

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
    """Mark an `encode` for text whose CUDA graph is valid for any other texts.

    Its result must depend only on its tensor arguments. It may pass ``attn_metadata`` to attention layers, but must not
    read it. The texts are padded by one extra sequence, of token 0 at position 0. An encoder with a bias by positions
    (a tensor) or RelativeKeys is not recorded in spite of the mark. A method that overrides a marked one is not marked.
    ``Parity(..., device="cuda")`` detects a wrong mark.
    """
    encode.is_replayable = True  # type: ignore[attr-defined]
    return encode


class ForConditionalGeneration(nn.Module):
    """An encoder/decoder model over flattened tokens.

    compute_dtype: of weights and activations. The worker builds models with it as PyTorch's default.

    A subclass is built as ``Model(config, context)`` and creates its parameters empty: the loader fills them. The
    runner calls `encode` for new inputs, and writes the keys and values that `cross_attentions` compute from its output
    into the cache. Then it calls `decode` for all requests, and `compute_logits` for the rows that need a token. A
    subclass with `encoder`, `decoder` or `head` need not override the method that calls it.
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
        """Return the model's shape, from its config alone."""

    @classmethod
    def longest_features(cls, config: Any) -> dict[str, Tensor]:
        """Return features of the longest input, in the form of the input mapper's, with any content; empty for text.

        For an encoder that reads text with them, also ``encoder_input_ids``, int64 [max_source_positions].

        The engine uses them to measure the GPU memory of a step. The default raises PluginError if the encoder does not
        read text.
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

        encoder_input_ids, encoder_positions: [encoder_tokens] int64; None for multimodal input without text. With text,
            there is an id for every token, with placeholders at the positions of the data.
        multimodal_kwargs: the keyword arguments of the input mapper, each a list with one tensor for each input;
            floating dtypes are converted to compute_dtype.
        Returns hidden states [encoder_tokens, hidden], input after input, with the number of rows that the mapper
        declared; other shapes fail the requests with PluginError. The default passes all arguments to `encoder`, except
        missing ids and positions.
        """
        text = () if encoder_input_ids is None else (encoder_input_ids, encoder_positions)
        return self.encoder(*text, attn_metadata, **multimodal_kwargs)

    def cross_attentions(self) -> Sequence[MakesKeysAndValues | None]:
        """Return the objects that compute keys and values of the encoder's output, one for each decoder layer.

        The default returns every CrossAttention of the model, in the order of its modules. A model with another class
        of cross-attention overrides this; None stands for a decoder layer without cross-attention.
        """
        return [module for module in self.modules() if isinstance(module, CrossAttention)]

    def decode(
        self, input_ids: Tensor, positions: Tensor, kv_caches: list[Tensor], attn_metadata: AttentionMetadata
    ) -> Tensor:
        """Run the decoder over all decoder tokens of the step.

        input_ids, positions: [num_tokens] int64. kv_caches: one for each decoder layer, [2, num_blocks, block_size,
        num_kv_heads, head_dim], with the keys and values of every request's encoder output.
        Returns hidden states [num_tokens, hidden]. The default passes all arguments to `decoder`.
        """
        return self.decoder(input_ids, positions, kv_caches, attn_metadata)

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """Return logits [rows, vocab_size]. hidden: [rows, hidden]. The default calls `head`."""
        return self.head(hidden)
