"""LayerConfig: the common settings of one side's layers. It makes their attentions and feed-forward networks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Literal

from torch import nn

from transept.core.attention.attention import LayerContext
from transept.core.attention.metadata import AttentionType
from transept.core.layers.feed_forward import FeedForward
from transept.core.layers.projected_attention import CrossAttention, SelfAttention
from transept.errors import CheckpointError, PluginError


@dataclass(frozen=True)
class LayerConfig:
    """The common settings of the layers of one side of a model.

    hidden_size, num_heads: of hidden states, and of queries.
    intermediate_size, activation, gated: see FeedForward.
    pre_norm: True for ``x + f(norm(x))`` in each sublayer f, as in T5, Whisper and ViT, usually with a separate norm
        after the last layer; False for ``norm(x + f(x))``, as in BART.
    norm: makes a norm for the hidden size, such as RMSNorm.
    num_kv_heads: see SelfAttention.
    head_dim: default hidden_size / num_heads.
    scale: of attention, default 1/√head_dim.
    bias: True if the linear layers have a bias.
    qkv_bias: True if attention's projections to queries, keys and values have a bias; default: bias.
    out_bias: True if attention's projection of its output has a bias; default: bias.
    sandwich_norm: ``x + norm(f(norm(x)))``; requires pre_norm.
    softcap: of scores, see Attention.
    window, rotary: of self-attention, see Attention and SelfAttention.
    encoder_hidden_size: see CrossAttention.

    If layers of one side differ, give each a separate config: ``dataclasses.replace(config, window=4096)``.

    Raises CheckpointError for a size that is not an integer of at least 1, and PluginError for a sandwich_norm without
    pre_norm.
    """

    hidden_size: int
    num_heads: int
    intermediate_size: int
    activation: str
    pre_norm: bool
    norm: Callable[[int], nn.Module] = nn.LayerNorm
    gated: bool = False
    num_kv_heads: int | None = None
    head_dim: int | None = None
    scale: float | None = None
    bias: bool = True
    qkv_bias: bool | None = None
    out_bias: bool | None = None
    sandwich_norm: bool = False
    softcap: float | None = None
    window: int | tuple[int, int] | None = None
    rotary: float | None = None
    encoder_hidden_size: int | None = None

    @classmethod
    def of_side(cls, config: Any, side: Literal["encoder", "decoder"], **options: Any) -> LayerConfig:
        """Make the settings of one side from a config with BART's names, as most of transformers' configs have.

        config: has d_model or hidden_size, activation_function, and for a decoder decoder_attention_heads and
            decoder_ffn_dim.
        options: the other fields, including pre_norm.
        """
        width = config.d_model if hasattr(config, "d_model") else config.hidden_size
        sizes = getattr(config, f"{side}_attention_heads"), getattr(config, f"{side}_ffn_dim")
        return cls(width, *sizes, config.activation_function, **options)

    def __post_init__(self) -> None:
        optional = ("num_kv_heads", "head_dim", "encoder_hidden_size")
        for name in ("hidden_size", "num_heads", "intermediate_size", *optional):
            size = getattr(self, name)
            left_out = size is None and name in optional
            if not left_out and (isinstance(size, bool) or not isinstance(size, Integral) or size < 1):
                raise CheckpointError(f"{name} of a layer must be an integer of at least 1, not {size!r}")
        if self.sandwich_norm and not self.pre_norm:
            raise PluginError("sandwich_norm is for layers with pre_norm=True: x + norm(f(norm(x)))")
        if self.num_kv_heads is not None and self.num_heads % self.num_kv_heads:
            raise CheckpointError(
                f"{self.num_heads} heads of a layer are not a multiple of {self.num_kv_heads} key heads"
            )

    def self_attention(self, attn_type: AttentionType, context: LayerContext) -> SelfAttention:
        """Make the self-attention of such a layer."""
        options = {"window": self.window, "rotary": self.rotary, **self._attention_options()}
        return SelfAttention(self.hidden_size, self.num_heads, attn_type, context=context, **options)

    def cross_attention(self, context: LayerContext) -> CrossAttention:
        """Make the cross-attention of such a layer."""
        options = {"encoder_hidden_size": self.encoder_hidden_size, **self._attention_options()}
        return CrossAttention(self.hidden_size, self.num_heads, context=context, **options)

    def feed_forward(self, context: LayerContext) -> FeedForward:
        """Make the feed-forward network of such a layer."""
        return FeedForward(
            self.hidden_size,
            self.intermediate_size,
            self.activation,
            gated=self.gated,
            bias=self.bias,
            group=context.group,
        )

    def _attention_options(self) -> dict[str, Any]:
        return {
            "num_kv_heads": self.num_kv_heads,
            "head_dim": self.head_dim,
            "scale": self.scale,
            "bias": self.bias if self.out_bias is None else self.out_bias,
            "qkv_bias": self.bias if self.qkv_bias is None else self.qkv_bias,
            "softcap": self.softcap,
        }

    def post_norm(self) -> nn.Module | None:
        """Make the norm of a sublayer's output; None without sandwich_norm."""
        return self.norm(self.hidden_size) if self.sandwich_norm else None
