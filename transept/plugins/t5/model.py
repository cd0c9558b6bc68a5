"""T5 (Raffel et al. 2020): pre-norm transformers whose self-attention knows positions by a learned relative bias alone.

mT5 and UMT5 differ in the scale before the head; UMT5 has a table of biases in every layer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from transept.authoring import (
    AttentionMetadata,
    AttentionType,
    ColumnParallelLinear,
    CrossAttention,
    ForConditionalGeneration,
    LayerContext,
    ModelShape,
    RelativePositionBias,
    RMSNorm,
    RowParallelLinear,
    SelfAttention,
    VocabParallelEmbedding,
    VocabParallelHead,
    get_activation,
)

ATTENTION_SCALE = 1.0  # not 1/√d_kv: the initialisation of the query projection makes up for it


def attention_options(config: Any, context: LayerContext) -> dict[str, Any]:
    """What T5's attentions of either kind are built with: heads that need not add up to d_model, and no biases."""
    return {
        "hidden_size": config.d_model,
        "num_heads": config.num_heads,
        "head_dim": config.d_kv,
        "bias": False,
        "scale": ATTENTION_SCALE,
        "context": context,
    }


class T5FeedForward(nn.Module):
    """``wo(act(wi(x)))``, or ``wo(act(wi_0(x)) · wi_1(x))`` where it is gated (Shazeer 2020)."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__()
        d_model, d_ff, group = config.d_model, config.d_ff, context.group
        self.gated = config.is_gated_act
        if self.gated:
            self.wi_0 = ColumnParallelLinear(d_model, d_ff, bias=False, group=group)
            self.wi_1 = ColumnParallelLinear(d_model, d_ff, bias=False, group=group)
        else:
            self.wi = ColumnParallelLinear(d_model, d_ff, bias=False, group=group)
        self.wo = RowParallelLinear(d_ff, d_model, bias=False, group=group)
        if self.wo.weight.dtype == torch.float16:
            self.wo.float()  # its outputs are beyond 65504; the residual that they are added to is float32 from there
        self.activation = get_activation(config.dense_act_fn)

    def forward(self, x: Tensor) -> Tensor:
        """x: [tokens, d_model]. Returns the same shape, in float32 where x is float16."""
        hidden = self.activation(self.wi_0(x)) * self.wi_1(x) if self.gated else self.activation(self.wi(x))
        return self.wo(hidden.to(self.wo.weight.dtype))


class T5EncoderLayer(nn.Module):
    """Pre-norm self-attention and feed-forward."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__()
        self.self_attn_norm = RMSNorm(config.d_model, config.layer_norm_epsilon)
        self.self_attn = SelfAttention(attn_type=AttentionType.ENCODER, **attention_options(config, context))
        self.ffn_norm = RMSNorm(config.d_model, config.layer_norm_epsilon)
        self.ffn = T5FeedForward(config, context)

    def forward(self, x: Tensor, bias: RelativePositionBias, metadata: AttentionMetadata) -> Tensor:
        """x: [encoder_tokens, d_model]. Returns the same shape."""
        x = x + self.self_attn(self.self_attn_norm(x), None, metadata, bias)
        return x + self.ffn(self.ffn_norm(x))


class T5DecoderLayer(nn.Module):
    """Pre-norm self-attention, cross-attention and feed-forward."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__()
        self.self_attn_norm = RMSNorm(config.d_model, config.layer_norm_epsilon)
        self.self_attn = SelfAttention(attn_type=AttentionType.DECODER, **attention_options(config, context))
        self.cross_attn_norm = RMSNorm(config.d_model, config.layer_norm_epsilon)
        self.cross_attn = CrossAttention(**attention_options(config, context))
        self.ffn_norm = RMSNorm(config.d_model, config.layer_norm_epsilon)
        self.ffn = T5FeedForward(config, context)

    def forward(
        self,
        x: Tensor,
        bias: RelativePositionBias,
        encoder_hidden: Tensor | None,
        kv_cache: Tensor,
        metadata: AttentionMetadata,
    ) -> Tensor:
        """x: [tokens, d_model], encoder_hidden: [encoder_tokens, d_model] of newcomers. Returns x's shape."""
        x = x + self.self_attn(self.self_attn_norm(x), kv_cache, metadata, bias)
        x = x + self.cross_attn(self.cross_attn_norm(x), encoder_hidden, kv_cache, metadata)
        return x + self.ffn(self.ffn_norm(x))


class T5Stack(nn.Module):
    """What the two sides share: layers, the final norm and the relative biases.

    num_tables: 1 when the layers share the first one's biases, else as many as there are layers.
    """

    def __init__(self, config: Any, layers: list[nn.Module], num_tables: int, bidirectional: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.final_norm = RMSNorm(config.d_model, config.layer_norm_epsilon)
        shape = (config.relative_attention_num_buckets, config.num_heads)
        self.relative_attention_biases = nn.ParameterList(
            nn.Parameter(torch.empty(shape), requires_grad=False) for _ in range(num_tables)
        )
        self.bidirectional = bidirectional
        self.max_distance = config.relative_attention_max_distance

    def biases(self) -> list[RelativePositionBias]:
        """The bias of each layer."""
        biases = [
            RelativePositionBias(table, self.bidirectional, self.max_distance)
            for table in self.relative_attention_biases
        ]
        return biases if len(biases) == len(self.layers) else biases * len(self.layers)


class T5Encoder(T5Stack):
    """Embedded tokens to hidden states."""

    def __init__(self, config: Any, bias_in_every_layer: bool, context: LayerContext) -> None:
        layers: list[nn.Module] = [T5EncoderLayer(config, context) for _ in range(config.num_layers)]
        super().__init__(config, layers, len(layers) if bias_in_every_layer else 1, bidirectional=True)

    def forward(self, x: Tensor, metadata: AttentionMetadata) -> Tensor:
        """x: [encoder_tokens, d_model]. Returns the same shape."""
        for layer, bias in zip(self.layers, self.biases(), strict=True):
            x = layer(x, bias, metadata)
        return self.final_norm(x)


class T5Decoder(T5Stack):
    """Embedded tokens and encoder hidden states to hidden states."""

    def __init__(self, config: Any, bias_in_every_layer: bool, context: LayerContext) -> None:
        layers: list[nn.Module] = [T5DecoderLayer(config, context) for _ in range(config.num_decoder_layers)]
        super().__init__(config, layers, len(layers) if bias_in_every_layer else 1, bidirectional=False)

    def forward(
        self, x: Tensor, encoder_hidden: Tensor | None, kv_caches: list[Tensor], metadata: AttentionMetadata
    ) -> Tensor:
        """x: [tokens, d_model], encoder_hidden: [encoder_tokens, d_model] of newcomers. Returns x's shape."""
        for layer, bias, kv_cache in zip(self.layers, self.biases(), kv_caches, strict=True):
            x = layer(x, bias, encoder_hidden, kv_cache, metadata)
        return self.final_norm(x)


class T5ForConditionalGeneration(ForConditionalGeneration):
    """T5 1.0 (ReLU, tied head), T5 1.1 and Flan-T5 (gated GELU, a head of its own)."""

    bias_in_every_layer = False

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__(config, context)
        self.shared = VocabParallelEmbedding(config.vocab_size, config.d_model, group=context.group)
        self.encoder = T5Encoder(config, self.bias_in_every_layer, context)
        self.decoder = T5Decoder(config, self.bias_in_every_layer, context)
        tied = self.shared.weight if config.tie_word_embeddings else None
        self.head = VocabParallelHead(config.vocab_size, config.d_model, group=context.group, weight=tied)
        self.head_scale = config.d_model**-0.5 if self.scales_outputs(config) else 1.0

    @classmethod
    def scales_outputs(cls, config: Any) -> bool:
        """Whether the decoder's output is scaled before the head, as it is where the head is the embedding.

        A T5Config says so itself: checkpoints of T5 1.1 may have lost their head of their own to a fine-tuning.
        """
        return getattr(config, "scale_decoder_outputs", config.tie_word_embeddings)

    @classmethod
    def shape(cls, config: Any) -> ModelShape:
        """The model's shape, from a transformers T5Config, MT5Config or UMT5Config. Positions have no bound."""
        return ModelShape(
            num_decoder_layers=config.num_decoder_layers,
            num_kv_heads=config.num_heads,
            head_dim=config.d_kv,
            vocab_size=config.vocab_size,
            max_source_positions=None,
            max_target_positions=None,
        )

    def encode(
        self,
        encoder_input_ids: Tensor | None,
        encoder_positions: Tensor | None,
        attn_metadata: AttentionMetadata,
        **multimodal_kwargs: list[Tensor],
    ) -> Tensor:
        """See ForConditionalGeneration.encode; text only."""
        return self.encoder(self.shared(encoder_input_ids), attn_metadata)

    def decode(
        self,
        input_ids: Tensor,
        positions: Tensor,
        encoder_hidden_states: Tensor | None,
        kv_caches: list[Tensor],
        attn_metadata: AttentionMetadata,
    ) -> Tensor:
        """See ForConditionalGeneration.decode."""
        return self.decoder(self.shared(input_ids), encoder_hidden_states, kv_caches, attn_metadata)

    def compute_logits(self, hidden: Tensor) -> Tensor:
        """hidden: [rows, d_model]. Returns [rows, vocab_size]."""
        return self.head(hidden * self.head_scale)


class MT5ForConditionalGeneration(T5ForConditionalGeneration):
    """mT5: T5 1.1 in many languages. Its outputs are never scaled."""

    @classmethod
    def scales_outputs(cls, config: Any) -> bool:
        """No, as in transformers."""
        return False


class UMT5ForConditionalGeneration(T5ForConditionalGeneration):
    """UMT5: mT5 with a table of relative biases in every layer."""

    bias_in_every_layer = True

    @classmethod
    def scales_outputs(cls, config: Any) -> bool:
        """Where the head is the embedding, as in training; transformers 5 takes every UMT5 head for that."""
        tied: bool = config.tie_word_embeddings
        return tied
