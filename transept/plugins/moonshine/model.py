"""Moonshine's model: convolutions over the waveform, then an encoder and a decoder with rotary positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transept.authoring import (
    AttentionMetadata,
    AttentionType,
    ColumnParallelLinear,
    CrossAttention,
    FeedForward,
    ForConditionalGeneration,
    LayerContext,
    ModelShape,
    RowParallelLinear,
    SelfAttention,
    VocabParallelEmbedding,
    VocabParallelHead,
    get_activation,
)
from transept.plugins.moonshine.audio import CONVOLUTIONS, LONGEST, num_tokens


@dataclass(frozen=True)
class Side:
    """The sizes of a decoder, by whatever names its config has them."""

    layers: int
    heads: int
    head_dim: int
    activation: str

    def shape(self, config: Any, max_source_positions: int) -> ModelShape:
        """Return the shape of a model with this decoder."""
        return ModelShape(
            num_decoder_layers=self.layers,
            num_kv_heads=self.heads,
            head_dim=self.head_dim,
            vocab_size=config.vocab_size,
            max_source_positions=max_source_positions,
            max_target_positions=config.max_position_embeddings,
            encoder_takes_text=False,
        )


Rotation = tuple[Tensor, Tensor]  # cosine and sine of every pair's angle, [tokens, 1, pairs] each


def layer_norm(config: Any) -> nn.LayerNorm:
    """Make a norm; no norm has a bias."""
    return nn.LayerNorm(config.hidden_size, bias=False)


def rotation_of(positions: Tensor, rope: Any, head_dim: int, dtype: torch.dtype) -> Rotation:
    """Rotary positions (Su et al. 2021). positions: [tokens]. Only the first part of a head's numbers turns."""
    rotated = int(head_dim * rope.get("partial_rotary_factor", 1.0))
    exponents = torch.arange(0, rotated, 2, dtype=torch.float32, device=positions.device) / rotated
    angles = positions[:, None, None].float() / rope["rope_theta"] ** exponents
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Turn neighbouring numbers of each head as pairs. x: [tokens, heads, head_dim]. Returns the same shape."""
    cosine, sine = rotation
    rotated = 2 * cosine.shape[-1]
    even, odd = x[..., 0:rotated:2], x[..., 1:rotated:2]
    rotated_pairs = torch.stack((even * cosine - odd * sine, odd * cosine + even * sine), dim=-1)
    return torch.cat((rotated_pairs.flatten(-2), x[..., rotated:]), dim=-1)


class RotarySelfAttention(SelfAttention):
    """Self-attention whose queries and keys are rotated by their positions. Keys are rotated before they are cached."""

    def forward(  # type: ignore[override]
        self, x: Tensor, rotation: Rotation, kv_cache: Tensor | None, metadata: AttentionMetadata
    ) -> Tensor:
        """x: [tokens, hidden]. Returns the same shape."""
        query, key, value = self.qkv_proj(x)
        query, key = rotate(query, rotation), rotate(key, rotation)
        return self.out_proj(self.attn(query, key, value, kv_cache, metadata, self.attn_type))


class GatedFeedForward(nn.Module):
    """``fc2(x · act(gate))`` with x and gate from one matrix, fc1."""

    def __init__(self, config: Any, activation: str, context: LayerContext) -> None:
        super().__init__()
        sizes = {"x": config.intermediate_size, "gate": config.intermediate_size}
        self.fc1 = ColumnParallelLinear(config.hidden_size, sum(sizes.values()), stacked=sizes, group=context.group)
        self.fc2 = RowParallelLinear(config.intermediate_size, config.hidden_size, group=context.group)
        self.activation = get_activation(activation)

    def forward(self, x: Tensor) -> Tensor:
        """x: [tokens, hidden]. Returns the same shape."""
        x, gate = self.fc1(x).chunk(2, dim=-1)
        return self.fc2(x * self.activation(gate))


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward network, each after its norm."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__()
        size, heads = config.hidden_size, config.encoder_num_attention_heads
        self.self_attn = RotarySelfAttention(size, heads, AttentionType.ENCODER, bias=False, context=context)
        self.mlp = FeedForward(size, config.intermediate_size, config.encoder_hidden_act, group=context.group)
        self.input_layernorm = layer_norm(config)
        self.post_attention_layernorm = layer_norm(config)

    def forward(self, x: Tensor, rotation: Rotation, metadata: AttentionMetadata) -> Tensor:
        """x: [encoder_tokens, hidden]. Returns the same shape."""
        x = x + self.self_attn(self.input_layernorm(x), rotation, None, metadata)
        return x + self.mlp(self.post_attention_layernorm(x))


class DecoderLayer(nn.Module):
    """Self-attention, cross-attention and a gated feed-forward network, each after its norm."""

    def __init__(self, config: Any, side: Side, context: LayerContext) -> None:
        super().__init__()
        size = config.hidden_size
        options: dict[str, Any] = {"head_dim": side.head_dim, "bias": False, "context": context}
        self.self_attn = RotarySelfAttention(size, side.heads, AttentionType.DECODER, **options)
        self.encoder_attn = CrossAttention(size, side.heads, **options)
        self.mlp = GatedFeedForward(config, side.activation, context)
        self.input_layernorm = layer_norm(config)
        self.post_attention_layernorm = layer_norm(config)
        self.final_layernorm = layer_norm(config)

    def forward(
        self,
        x: Tensor,
        rotation: Rotation,
        kv_cache: Tensor,
        metadata: AttentionMetadata,
    ) -> Tensor:
        """x: [tokens, hidden]. Returns x's shape."""
        x = x + self.self_attn(self.input_layernorm(x), rotation, kv_cache, metadata)
        x = x + self.encoder_attn(self.post_attention_layernorm(x), kv_cache, metadata)
        return x + self.mlp(self.final_layernorm(x))


class Encoder(nn.Module):
    """Waveforms to hidden states."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__()
        self.config = config
        size = config.hidden_size
        first, second, third = CONVOLUTIONS
        self.conv1 = nn.Conv1d(1, size, *first, bias=False)
        self.groupnorm = nn.GroupNorm(1, size)
        self.conv2 = nn.Conv1d(size, 2 * size, *second)
        self.conv3 = nn.Conv1d(2 * size, size, *third)
        self.layers = nn.ModuleList(EncoderLayer(config, context) for _ in range(config.encoder_num_hidden_layers))
        self.layer_norm = layer_norm(config)

    def forward(self, metadata: AttentionMetadata, input_values: list[Tensor]) -> Tensor:
        """input_values: each input's waveform, [samples], of any length. Returns [encoder_tokens, hidden]."""
        parts = [self._stem(waveform) for waveform in input_values]  # one by one: a norm is over a whole recording
        x = torch.cat(parts)
        positions = torch.cat([torch.arange(len(part), device=x.device) for part in parts])
        head_dim = self.config.hidden_size // self.config.encoder_num_attention_heads
        rotation = rotation_of(positions, self.config.rope_parameters, head_dim, x.dtype)
        for layer in self.layers:
            x = layer(x, rotation, metadata)
        return self.layer_norm(x)

    def _stem(self, waveform: Tensor) -> Tensor:
        x = torch.tanh(self.conv1(waveform.to(self.conv1.weight)[None, None]))
        return F.gelu(self.conv3(F.gelu(self.conv2(self.groupnorm(x)))))[0].T  # [encoder_tokens, hidden]


class Decoder(nn.Module):
    """Tokens to hidden states, for both families."""

    def __init__(self, config: Any, side: Side, context: LayerContext) -> None:
        super().__init__()
        self.rope, self.head_dim = config.rope_parameters, side.head_dim
        self.embed_tokens = VocabParallelEmbedding(config.vocab_size, config.hidden_size, group=context.group)
        self.layers = nn.ModuleList(DecoderLayer(config, side, context) for _ in range(side.layers))
        self.norm = layer_norm(config)

    def forward(
        self,
        input_ids: Tensor,
        positions: Tensor,
        kv_caches: list[Tensor],
        metadata: AttentionMetadata,
    ) -> Tensor:
        """input_ids, positions: [tokens]. Returns [tokens, hidden]."""
        x = self.embed_tokens(input_ids)
        rotation = rotation_of(positions, self.rope, self.head_dim, x.dtype)
        for layer, kv_cache in zip(self.layers, kv_caches, strict=True):
            x = layer(x, rotation, kv_cache, metadata)
        return self.norm(x)


def decoder_side(config: Any) -> Side:
    """Return the decoder's sizes of a MoonshineConfig."""
    heads = config.decoder_num_attention_heads
    return Side(config.decoder_num_hidden_layers, heads, config.hidden_size // heads, config.decoder_hidden_act)


class MoonshineForConditionalGeneration(ForConditionalGeneration):
    """Both released sizes; each side has as many key heads as query heads."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__(config, context)
        self.encoder = Encoder(config, context)
        self.decoder = Decoder(config, decoder_side(config), context)
        self.head = VocabParallelHead(
            config.vocab_size, config.hidden_size, group=context.group, weight=self.decoder.embed_tokens.weight
        )

    @classmethod
    def shape(cls, config: Any) -> ModelShape:
        """From a transformers MoonshineConfig."""
        return decoder_side(config).shape(config, num_tokens(LONGEST))

    @classmethod
    def longest_features(cls, config: Any) -> dict[str, Tensor]:
        """Silence."""
        return {"input_values": torch.zeros(LONGEST)}
