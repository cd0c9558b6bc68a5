"""The streaming Moonshine: an encoder whose attention has windows and no positions, and the decoder of Moonshine."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transept.authoring import (
    AttentionMetadata,
    AttentionType,
    FeedForward,
    ForConditionalGeneration,
    LayerContext,
    Linear,
    ModelShape,
    SelfAttention,
    VocabParallelHead,
)
from transept.plugins.moonshine import STREAMING_FRAME, STREAMING_TOKEN
from transept.plugins.moonshine.audio import LONGEST, num_streaming_tokens
from transept.plugins.moonshine.model import Decoder, Side

TAPS, STRIDE = 5, 2  # of both convolutions, which see no later frame
EPSILON = 1e-6  # of a frame's norm


class OffsetLayerNorm(nn.Module):
    """A layer norm without a bias, whose weight is ``1 + gamma``."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.empty(size), requires_grad=False)

    @cached_property
    def _weight(self) -> Tensor:
        return 1 + self.gamma

    def forward(self, x: Tensor) -> Tensor:
        """x: [tokens, hidden]. Returns the same shape."""
        return F.layer_norm(x, self.gamma.shape, self._weight)


class EncoderLayer(nn.Module):
    """Self-attention in a window and a feed-forward network, each after its norm.

    window: numbers of tokens up to its own, and from its own on, that a token sees.
    """

    def __init__(self, config: Any, window: tuple[int, int], context: LayerContext) -> None:
        super().__init__()
        size, reach = config.hidden_size, (window[0] - 1, max(window[1] - 1, 0))
        self.self_attn = SelfAttention(
            size,
            config.num_attention_heads,
            AttentionType.ENCODER,
            num_kv_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            bias=config.attention_bias,
            window=reach,
            context=context,
        )
        self.mlp = FeedForward(size, config.intermediate_size, config.hidden_act, group=context.group)
        self.input_layernorm, self.post_attention_layernorm = OffsetLayerNorm(size), OffsetLayerNorm(size)

    def forward(self, x: Tensor, metadata: AttentionMetadata) -> Tensor:
        """x: [encoder_tokens, hidden]. Returns the same shape."""
        x = x + self.self_attn(self.input_layernorm(x), None, metadata)
        return x + self.mlp(self.post_attention_layernorm(x))


class Compression(nn.Module):
    """``asinh(exp(log_k) · x)``."""

    def __init__(self) -> None:
        super().__init__()
        self.log_k = nn.Parameter(torch.empty(()), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """x: of any shape, which is kept."""
        return torch.asinh(self.log_k.exp() * x)


class Embedder(nn.Module):
    """A waveform to vectors: frames of 5 ms, each normalised and compressed, then convolutions."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.comp = Compression()
        self.linear = Linear(STREAMING_FRAME, size, bias=False)
        self.conv1 = nn.Conv1d(size, 2 * size, TAPS, STRIDE)
        self.conv2 = nn.Conv1d(2 * size, size, TAPS, STRIDE)

    def forward(self, waveform: Tensor) -> Tensor:
        """waveform: [samples]. Returns [encoder_tokens, hidden]. A last frame that is not whole counts as silence."""
        whole = len(waveform) // STREAMING_FRAME
        padded = F.pad(waveform.to(self.conv1.weight), (0, -len(waveform) % STREAMING_FRAME))
        frames = padded.view(-1, STREAMING_FRAME)
        frames = frames - frames.mean(-1, keepdim=True)
        frames = frames / (frames.square().mean(-1, keepdim=True) + EPSILON).sqrt()
        hidden = F.silu(self.linear(self.comp(frames)))
        hidden[whole:] = 0
        for index, convolution in enumerate((self.conv1, self.conv2)):
            hidden = convolution(F.pad(hidden.t()[None], (TAPS - 1, 0)))[0].t()
            hidden = hidden if index else F.silu(hidden)
        return hidden


class Encoder(nn.Module):
    """Waveforms to hidden states of the decoder's size. config: a MoonshineStreamingConfig."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__()
        own = config.encoder_config
        self.embedder = Embedder(own.hidden_size)
        self.layers = nn.ModuleList(EncoderLayer(own, tuple(window), context) for window in own.sliding_windows)
        self.final_norm = OffsetLayerNorm(own.hidden_size)
        self.pos_emb = nn.Embedding(config.max_position_embeddings, own.hidden_size)
        alike = own.hidden_size == config.hidden_size
        self.proj = None if alike else Linear(own.hidden_size, config.hidden_size, bias=False)

    def forward(self, metadata: AttentionMetadata, input_values: list[Tensor]) -> Tensor:
        """input_values: each input's waveform, [samples], of any length. Returns [encoder_tokens, hidden]."""
        parts = [self.embedder(waveform) for waveform in input_values]
        x = torch.cat(parts)
        for layer in self.layers:
            x = layer(x, metadata)
        x = self.final_norm(x) + torch.cat([self.pos_emb.weight[: len(part)] for part in parts])
        return x if self.proj is None else self.proj(x)


def longest(config: Any) -> int:
    """Return the samples of the longest input, each of whose encoder tokens has a position."""
    return min(LONGEST, int(config.max_position_embeddings) * STREAMING_TOKEN)


def decoder_side(config: Any) -> Side:
    """Return the decoder's sizes of a MoonshineStreamingConfig."""
    return Side(config.num_hidden_layers, config.num_attention_heads, config.head_dim, config.hidden_act)


class MoonshineStreamingForConditionalGeneration(ForConditionalGeneration):
    """All released sizes; the decoder has as many key heads as query heads."""

    def __init__(self, config: Any, context: LayerContext) -> None:
        super().__init__(config, context)
        self.encoder = Encoder(config, context)
        self.decoder = Decoder(config, decoder_side(config), context)
        tied = self.decoder.embed_tokens.weight if config.tie_word_embeddings else None
        self.head = VocabParallelHead(config.vocab_size, config.hidden_size, group=context.group, weight=tied)

    @classmethod
    def shape(cls, config: Any) -> ModelShape:
        """From a transformers MoonshineStreamingConfig."""
        return decoder_side(config).shape(config, num_streaming_tokens(longest(config)))

    @classmethod
    def longest_features(cls, config: Any) -> dict[str, Tensor]:
        """Silence."""
        return {"input_values": torch.zeros(longest(config))}
