"""T5 (Raffel et al. 2020): pre-norm layers whose positions are a learned relative bias of self-attention.

mT5 and UMT5 have another scale before the head; UMT5 has a table of biases in every layer. LongT5's encoder (Guo et
al. 2022) has local attention; transformers computes it.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from transept.authoring import (
    AttentionMetadata,
    CheckpointError,
    DecoderLayer,
    DecoderLayers,
    EncoderLayer,
    ForConditionalGeneration,
    LayerConfig,
    LayerContext,
    ModelShape,
    RelativePositionBias,
    RMSNorm,
    VocabParallelEmbedding,
    VocabParallelHead,
    replayable,
    transformers_encoder,
)

ATTENTION_SCALE = 1.0  # not 1/√d_kv: the query projection's initialisation compensates


def layer_config(config: Any) -> LayerConfig:
    """Return the settings of T5's layers. Heads may not add up to d_model; linear layers have no bias."""
    return LayerConfig(
        config.d_model,
        config.num_heads,
        config.d_ff,
        config.dense_act_fn,
        pre_norm=True,
        norm=partial(RMSNorm, eps=config.layer_norm_epsilon),
        gated=config.is_gated_act,
        head_dim=config.d_kv,
        scale=ATTENTION_SCALE,
        bias=False,
    )


class T5Stack(nn.Module):
    """The common part of both sides: layers, the final norm and the relative biases.

    num_tables: 1 if all layers share biases, else the number of layers.
    """

    def __init__(self, config: Any, layers: nn.ModuleList, num_tables: int, bidirectional: bool) -> None:
        super().__init__()
        self.layers = layers
        layer: Any
        for layer in layers:
            if layer.ffn.fc2.weight.dtype == torch.float16:
                layer.ffn.fc2.float()  # its outputs exceed float16's range; the residual is then float32
        self.final_norm = RMSNorm(config.d_model, config.layer_norm_epsilon)
        shape = (config.relative_attention_num_buckets, config.num_heads)
        self.relative_attention_biases = nn.ParameterList(
            nn.Parameter(torch.empty(shape), requires_grad=False) for _ in range(num_tables)
        )
        self.bidirectional = bidirectional
        exact = config.relative_attention_num_buckets // (4 if bidirectional else 2)  # buckets of one distance
        if exact < 1 or config.relative_attention_max_distance <= exact:
            raise CheckpointError(
                f"relative_attention_num_buckets={config.relative_attention_num_buckets} and "
                f"relative_attention_max_distance={config.relative_attention_max_distance} leave no far distances"
            )
        self.max_distance = config.relative_attention_max_distance

    def biases(self) -> list[RelativePositionBias]:
        """Return the bias of each layer."""
        biases = [
            RelativePositionBias(table, self.bidirectional, self.max_distance)
            for table in self.relative_attention_biases
        ]
        return biases if len(biases) == len(self.layers) else biases * len(self.layers)


class T5Encoder(T5Stack):
    """Embedded tokens to hidden states."""

    def __init__(self, config: Any, bias_in_every_layer: bool, context: LayerContext) -> None:
        layers = nn.ModuleList(EncoderLayer(layer_config(config), context) for _ in range(config.num_layers))
        super().__init__(config, layers, len(layers) if bias_in_every_layer else 1, bidirectional=True)

    def forward(self, x: Tensor, metadata: AttentionMetadata) -> Tensor:
        """x: [encoder_tokens, d_model]. Returns the same shape."""
        for layer, bias in zip(self.layers, self.biases(), strict=True):
            x = layer(x, metadata, bias)
        return self.final_norm(x)


class T5Decoder(T5Stack):
    """Tokens to hidden states."""

    def __init__(
        self, config: Any, embed_tokens: VocabParallelEmbedding, bias_in_every_layer: bool, context: LayerContext
    ) -> None:
        layers = DecoderLayers(DecoderLayer(layer_config(config), context) for _ in range(config.num_decoder_layers))
        super().__init__(config, layers, len(layers) if bias_in_every_layer else 1, bidirectional=False)
        self.embed_tokens = embed_tokens

    def forward(self, input_ids: Tensor, positions: Tensor, *step: Any) -> Tensor:
        """input_ids, positions: [tokens]. step: further arguments of layers. Returns [tokens, d_model]."""
        return self.layers(self.embed_tokens(input_ids), *step, self.biases(), last_norm=self.final_norm)


class T5ForConditionalGeneration(ForConditionalGeneration):
    """T5 1.0 (ReLU, tied head), T5 1.1 and Flan-T5 (gated GELU, separate head)."""

    bias_in_every_layer = False

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__(config, context)
        self.shared = VocabParallelEmbedding(config.vocab_size, config.d_model, group=context.group)
        self.encoder = self.make_encoder(config, context)
        self.decoder = T5Decoder(config, self.shared, self.bias_in_every_layer, context)
        tied = self.shared.weight if config.tie_word_embeddings else None
        self.head = VocabParallelHead(config.vocab_size, config.d_model, group=context.group, weight=tied)
        self.head_scale = config.d_model**-0.5 if self.scales_outputs(config) else 1.0

    def make_encoder(self, config: Any, context: LayerContext) -> nn.Module:
        """Make the encoder without its embedding."""
        return T5Encoder(config, self.bias_in_every_layer, context)

    @classmethod
    def scales_outputs(cls, config: Any) -> bool:
        """Return True if the decoder's output is scaled before the head: by default if the head is tied.

        A T5Config says so explicitly, because fine-tuning may have tied the head of a T5 1.1 checkpoint.
        """
        return getattr(config, "scale_decoder_outputs", config.tie_word_embeddings)

    @classmethod
    def shape(cls, config: Any) -> ModelShape:
        """Return the shape, from a transformers T5Config, MT5Config or UMT5Config. Positions have no bound."""
        return ModelShape(
            num_decoder_layers=config.num_decoder_layers,
            num_kv_heads=config.num_heads,
            head_dim=config.d_kv,
            vocab_size=config.vocab_size,
            max_source_positions=None,
            max_target_positions=None,
        )

    @replayable
    def encode(
        self,
        encoder_input_ids: Tensor | None,
        encoder_positions: Tensor | None,
        attn_metadata: AttentionMetadata,
        **multimodal_kwargs: list[Tensor],
    ) -> Tensor:
        """See ForConditionalGeneration.encode; text only."""
        return self.encoder(self.shared(encoder_input_ids), attn_metadata)

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """hidden: [rows, d_model]. Returns [rows, vocab_size]."""
        return self.head(hidden * self.head_scale)


class MT5ForConditionalGeneration(T5ForConditionalGeneration):
    """mT5: T5 1.1 in many languages. Its outputs are never scaled."""

    @classmethod
    def scales_outputs(cls, config: Any) -> bool:
        """Return False, as in transformers."""
        return False


class UMT5ForConditionalGeneration(T5ForConditionalGeneration):
    """UMT5: mT5 with a table of relative biases in every layer."""

    bias_in_every_layer = True

    @classmethod
    def scales_outputs(cls, config: Any) -> bool:
        """Return True for a tied head, as in training; transformers 5 assumes a tied head in every UMT5."""
        return bool(config.tie_word_embeddings)


class LongT5ForConditionalGeneration(T5ForConditionalGeneration):
    """LongT5: T5 1.1's decoder after an encoder with local attention, or local and transient-global attention."""

    def make_encoder(self, config: Any, context: LayerContext) -> nn.Module:
        """Make transformers' LongT5Stack, which pads a text to whole blocks."""
        model: Any = transformers_encoder(config, model_class="transformers:LongT5EncoderModel")
        stack: nn.Module = model.encoder
        model.set_input_embeddings(self.shared)
        return stack

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
        return torch.cat([self.encoder(input_ids=ids[None]).last_hidden_state[0] for ids in texts])
