"""ConformerLayer: attention and a convolution between two halves of a feed-forward network (Gulati et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transept.core.attention.attention import Attention, LayerContext
from transept.core.attention.metadata import AttentionMetadata, AttentionType
from transept.core.attention.relative_keys import RelativeKeys
from transept.core.kernels.dispatch import ACTIVATIONS, GATE_AND_CONVOLVE
from transept.core.layers.activations import get_activation
from transept.core.layers.feed_forward import FeedForward
from transept.core.layers.linear import (
    WHOLE,
    ColumnParallelLinear,
    QKVParallelLinear,
    RowParallelLinear,
    StackedParameter,
)
from transept.core.layers.norm import norm_of
from transept.core.parallel.group import ParallelGroup
from transept.errors import CheckpointError


@dataclass(frozen=True)
class ConformerConfig:
    """The settings of a Conformer's layers.

    hidden_size, num_heads: of hidden states, and of attention.
    intermediate_size: of each of the two feed-forward networks.
    kernel_size: taps of the convolution.
    longest: encoder tokens of the longest input.
    activation: of the feed-forward networks and the convolution, see get_activation.
    bias, conv_bias: True if the linear layers, and the convolutions, have a bias.
    before: taps of the convolution for tokens before a token's own; default half of the others.
    batch_norm: True if the convolution's norm is a BatchNorm1d, False for a LayerNorm.

    Raises CheckpointError for a kernel_size without a tap for a token's own place.
    """

    hidden_size: int
    num_heads: int
    intermediate_size: int
    kernel_size: int
    longest: int
    activation: str = "silu"
    bias: bool = True
    conv_bias: bool = True
    before: int | None = None
    batch_norm: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.taps_before < self.kernel_size:
            raise CheckpointError(
                f"a convolution of {self.kernel_size} taps cannot have {self.taps_before} before a token's own: "
                f"kernel_size must be larger"
            )

    @property
    def taps_before(self) -> int:
        """`before`, or its default."""
        return (self.kernel_size - 1) // 2 if self.before is None else self.before


class RelativeSelfAttention(nn.Module):
    """An encoder's self-attention by content and distance, as in Transformer-XL (Dai et al. 2019, section 3.3).

    Its parameters: SelfAttention's, ``position_proj.weight``, and ``content_bias`` and ``position_bias``,
    [heads, head_dim]: the paper's W_{k,R}, u and v.
    """

    def __init__(self, config: ConformerConfig, context: LayerContext) -> None:
        super().__init__()
        size, heads, group = config.hidden_size, config.num_heads, context.group
        self.head_dim, self._longest = size // heads, config.longest
        self.qkv_proj = QKVParallelLinear(size, heads, self.head_dim, bias=config.bias, group=group)
        self.position_proj = ColumnParallelLinear(size, size, bias=False, group=group)
        self.out_proj = RowParallelLinear(size, size, bias=config.bias, group=group)
        self.content_bias = _own_rows(heads, self.head_dim, group)
        self.position_bias = _own_rows(heads, self.head_dim, group)
        self.attn = Attention(self.head_dim, context=context)

    def forward(self, x: Tensor, metadata: AttentionMetadata) -> Tensor:
        """x: [encoder_tokens, hidden]. Returns x's shape."""
        query, key, value = self.qkv_proj(x)
        return self.out_proj(self.attn(query, key, value, None, metadata, AttentionType.ENCODER, self._keys))

    @cached_property
    def _keys(self) -> RelativeKeys:
        """The keys of all distances, which depend on no input."""
        bias = self.position_bias
        sinusoids = distance_sinusoids(self._longest, self.qkv_proj.in_features).to(bias)
        table = self.position_proj(sinusoids).unflatten(-1, (-1, self.head_dim)).transpose(0, 1).contiguous()
        return RelativeKeys(table, self._longest - 1, self.content_bias, bias)


def distance_sinusoids(longest: int, hidden_size: int) -> Tensor:
    """Return sinusoids of the distances longest - 1, ..., 1 - longest from a query back to a key, float32.

    Sine and cosine of one frequency are neighbours, as in Transformer-XL. Returns [2 · longest - 1, hidden_size].
    """
    frequencies = 10_000.0 ** -(torch.arange(0, hidden_size, 2, dtype=torch.float32) / hidden_size)
    angles = torch.arange(longest - 1, -longest, -1, dtype=torch.float32)[:, None] * frequencies
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


class BatchNorm(nn.Module):
    """The parameters of a BatchNorm1d, whose statistics are constants. They are folded into the convolution before."""

    def __init__(self, channels: int, group: ParallelGroup, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight, self.bias, self.running_mean, self.running_var = (
            _own_rows(channels, None, group) for _ in range(4)
        )
        self.eps = eps

    def folded(self, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the weight and the bias of a convolution followed by this norm. weight: [channels, taps]."""
        scale = self.weight * torch.rsqrt(self.running_var + self.eps)
        shift = self.bias - self.running_mean * scale
        return weight * scale[:, None], shift if bias is None else bias * scale + shift


class DepthwiseConv1d(nn.Module):
    """The parameters of a depthwise convolution: weight [channels, 1, taps], bias [channels]."""

    def __init__(self, channels: int, taps: int, bias: bool, group: ParallelGroup) -> None:
        super().__init__()
        self.weight = _own_rows(channels, (1, taps), group)
        self.bias = _own_rows(channels, None, group) if bias else None


class ConvolutionModule(nn.Module):
    """``out_proj(act(norm(conv(glu(in_proj(x))))))``, where conv is a depthwise convolution over time.

    Its parameters: ``in_proj`` with the parts ``value`` and ``gate``, ``conv``, ``norm`` and ``out_proj``.
    """

    def __init__(self, config: ConformerConfig, context: LayerContext) -> None:
        super().__init__()
        size, group = config.hidden_size, context.group
        parts = dict.fromkeys(("value", "gate"), size)
        self.in_proj = ColumnParallelLinear(size, 2 * size, config.conv_bias, stacked=parts, group=group)
        self.conv = DepthwiseConv1d(size, config.kernel_size, config.conv_bias, group)
        self.norm = BatchNorm(size, group) if config.batch_norm else nn.LayerNorm(size)
        if not config.batch_norm and group.size > 1:
            raise CheckpointError("a LayerNorm over all channels of a convolution cannot be split over ranks")
        self.out_proj = RowParallelLinear(size, size, config.conv_bias, group=group)
        self._before, self._activation = config.taps_before, config.activation

    def forward(self, x: Tensor, starts: Sequence[int]) -> Tensor:
        """x: [encoder_tokens, hidden]; sequence i has the tokens ``starts[i] : starts[i + 1]``. Returns x's shape."""
        gated, activation = self.in_proj(x), None if isinstance(self.norm, nn.LayerNorm) else self._activation
        convolve = GATE_AND_CONVOLVE.serving(gated) if activation is None or activation in ACTIVATIONS else None
        weight, bias = self._folded
        if convolve is not None:
            out = convolve(gated, starts, weight, bias, self._before, activation)
        else:
            out = _gate_and_convolve(gated, starts, weight, bias, self._before)
            out = out if activation is None else get_activation(activation)(out)
        if activation is None:
            out = get_activation(self._activation)(self.norm(out))
        return self.out_proj(out)

    @cached_property
    def _folded(self) -> tuple[Tensor, Tensor | None]:
        """The convolution's weight [taps, channels] and bias, with a BatchNorm's."""
        weight: Tensor = self.conv.weight[:, 0]
        bias: Tensor | None = self.conv.bias
        if isinstance(self.norm, BatchNorm):
            weight, bias = self.norm.folded(weight, bias)
        return weight.t().contiguous(), bias


def _gate_and_convolve(x: Tensor, starts: Sequence[int], weight: Tensor, bias: Tensor | None, before: int) -> Tensor:
    """Compute GATE_AND_CONVOLVE without an activation by PyTorch's operators: one convolution, with gaps of zeros."""
    taps, gap = len(weight), len(weight) - 1
    places = torch.cat([torch.arange(start, end) + i * gap for i, (start, end) in enumerate(pairwise(starts))])
    places = places.to(x.device)
    padded = x.new_zeros(len(x) + gap * len(starts), weight.shape[1])
    padded[places + before] = F.glu(x, dim=-1)
    out = F.conv1d(padded.t()[None], weight.t()[:, None], bias, groups=weight.shape[1])
    assert out.shape[2] == len(padded) - taps + 1
    return out[0].t()[places]


class ConformerLayer(nn.Module):
    """``ffn1``, ``self_attn``, ``conv`` and ``ffn2``, each after its norm, such as ``ffn1_norm``; then ``out_norm``."""

    def __init__(self, config: ConformerConfig, context: LayerContext) -> None:
        super().__init__()
        size = config.hidden_size
        self.ffn1, self.ffn2 = (
            FeedForward(size, config.intermediate_size, config.activation, bias=config.bias, group=context.group)
            for _ in range(2)
        )
        self.self_attn, self.conv = RelativeSelfAttention(config, context), ConvolutionModule(config, context)
        self.ffn1_norm, self.self_attn_norm, self.conv_norm, self.ffn2_norm, self.out_norm = (
            nn.LayerNorm(size) for _ in range(5)
        )

    def forward(self, x: Tensor, metadata: AttentionMetadata) -> Tensor:
        """x: [encoder_tokens, hidden]. Returns x's shape."""
        x = torch.add(x, self.ffn1(norm_of(x, self.ffn1_norm)), alpha=0.5)
        x = x.add_(self.self_attn(norm_of(x, self.self_attn_norm), metadata))
        x = x.add_(self.conv(norm_of(x, self.conv_norm), metadata.encoder_start_loc))
        x = x.add_(self.ffn2(norm_of(x, self.ffn2_norm)), alpha=0.5)
        return norm_of(x, self.out_norm)


def _own_rows(rows: int, shape: int | tuple[int, ...] | None, group: ParallelGroup) -> StackedParameter:
    """Make a parameter [rows, *shape] whose rows are split over the group."""
    rest = () if shape is None else (shape,) if isinstance(shape, int) else shape
    own = group.share(rows, "heads or channels")
    return StackedParameter.of((own, *rest), {}, {WHOLE: group.shard(rows, dim=0)} if group.size > 1 else None)
