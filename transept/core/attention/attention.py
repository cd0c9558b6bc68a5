"""Attention: the module that models call for attention over flattened tokens and the paged cache. Calls a backend."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from transept.core.attention.backends.base import AttentionBackend, AttentionCall
from transept.core.attention.biases import AttentionBias, RelativePositionBias
from transept.core.attention.metadata import AttentionMetadata, AttentionType
from transept.core.attention.relative_keys import RelativeKeys, attend_relative_keys
from transept.core.parallel.group import ParallelGroup
from transept.core.parallel.pipeline_stage import PipelineStage
from transept.errors import CheckpointError, PluginError


class RowsDifferError(PluginError):
    """The number of queries of an attention call does not match its metadata. rows: number of queries."""

    def __init__(self, metadata: AttentionMetadata, attn_type: AttentionType, rows: int, tokens: int) -> None:
        super().__init__(
            f"attention of type {attn_type.value} was given queries of {rows} tokens, and its metadata describes "
            f"{tokens}: pass it a row for each token of the step, in their order"
        )
        self.metadata, self.rows = metadata, rows


@dataclass(frozen=True)
class LayerContext:
    """The engine's objects for every layer that a model builds.

    Pass it to layers as ``context=``, and ``group=context.group`` to layers without attention.

    attention_backend: computes attention on this device.
    group: the processes that share the model's layers.
    stage: this process's pipeline stage; models do not use it.
    """

    attention_backend: AttentionBackend
    group: ParallelGroup
    stage: PipelineStage = field(default_factory=PipelineStage)


class Attention(nn.Module):
    """``softmax(scale · QKᵀ + bias) V`` over flattened tokens and the paged cache.

    scale: default 1/√head_dim.
    softcap: scaled scores become ``softcap · tanh(scores / softcap)`` before a bias is added (Gemma 2, 2024, section
        2).
    window: of self-attention. In a decoder, a query sees its own key and the ``window - 1`` before it. In an encoder,
        it sees keys at a distance of at most ``window`` on either side, as in transformers'
        sliding_window_bidirectional_overlay. A pair ``(before, after)`` is the most distant key on each side. Cache
        blocks outside the window are freed only if `ModelShape.window` is set, because all layers share one block
        table.

    Raises CheckpointError if softcap is not a number above 0, or window is not an integer of at least 1,
    or a pair of integers of at least 0.
    """

    def __init__(
        self,
        head_dim: int,
        *,
        scale: float | None = None,
        softcap: float | None = None,
        window: int | tuple[int, int] | None = None,
        context: LayerContext,
    ) -> None:
        super().__init__()
        if softcap is not None and (
            isinstance(softcap, bool) or not isinstance(softcap, int | float) or not 0 < softcap < math.inf
        ):
            raise CheckpointError(f"the softcap of attention must be a number above 0, or None, not {softcap!r}")
        if not _is_window(window):
            raise CheckpointError(
                f"the window of attention must be an integer of at least 1, a pair (before, after) of integers from 0 "
                f"up, or None, not {window!r}"
            )
        self.scale = head_dim**-0.5 if scale is None else scale
        self.softcap, self.window = softcap, window
        self.backend = context.attention_backend
        self._group = context.group

    def forward(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        kv_cache: Tensor | None,
        attn_metadata: AttentionMetadata,
        attn_type: AttentionType,
        bias: AttentionBias | RelativeKeys | None = None,
    ) -> Tensor:
        """Write new keys and values of self-attention into the cache, then attend.

        query: [num_tokens, num_heads, head_dim].
        key, value: [num_new_keys, num_kv_heads, head_dim]; None for cross-attention, whose keys are in the cache.
        kv_cache: this layer's [2, num_blocks, block_size, num_kv_heads, head_dim]; None for ENCODER.
        bias: by positions within a sequence, see `transept.core.attention.biases`; for this rank's heads or for all.
            For ENCODER, RelativeKeys are also valid.
        Returns [num_tokens, num_heads * head_dim]. Raises RowsDifferError if the metadata describes another number of
        tokens, and PluginError for a combination that no backend supports.
        """
        if self.window is not None and attn_type is AttentionType.ENCODER_DECODER:
            raise PluginError("cross-attention cannot have a window: set it for self-attention only")
        if key is not None and attn_type is AttentionType.ENCODER_DECODER:
            raise PluginError(
                "cross-attention was given keys, which the engine writes before the decoder runs: pass None, and "
                "return the layers that compute them from cross_attentions() of the model"
            )
        if attn_metadata.window is not None and attn_type is AttentionType.DECODER:
            self._check_window(attn_metadata.window, bias)
        if isinstance(bias, RelativeKeys) and (attn_type is not AttentionType.ENCODER or self.softcap is not None):
            raise PluginError(
                "RelativeKeys serve only an encoder's self-attention without a soft cap: pass another bias"
            )
        num_queries = attn_metadata.num_queries(attn_type)
        if len(query) != num_queries:  # GPU kernels would read and write out of bounds
            raise RowsDifferError(attn_metadata, attn_type, len(query), num_queries)
        if isinstance(bias, Tensor) and attn_type is AttentionType.ENCODER and attn_metadata.num_rows is not None:
            raise PluginError(
                "a recorded pass serves texts of any length, so a bias tensor by positions cannot be used: pass "
                "RelativeKeys or a RelativePositionBias"
            )
        if isinstance(bias, RelativeKeys):
            own = AttentionCall(query, key, value, None, attn_metadata, attn_type, self.scale, window=self.window)
            return attend_relative_keys(own, bias, self.backend.quantization).flatten(1)
        if bias is not None and self._group.size > 1:
            bias = self._of_own_heads(bias, query.shape[1])
        given = (query, key, value, kv_cache, attn_metadata, attn_type, self.scale, bias, self.softcap, self.window)
        out = self.backend.forward(AttentionCall(*given))
        if attn_metadata.capture is not None and attn_type is AttentionType.ENCODER_DECODER:
            assert kv_cache is not None
            attn_metadata.capture.record(query, kv_cache, self.scale, self.softcap)
        return out.flatten(1)

    @property
    def _seen_by_decoder(self) -> int:
        """Tokens in the window of a decoder's query, its own among them."""
        assert self.window is not None
        return self.window if isinstance(self.window, int) else self.window[0] + 1

    def _check_window(self, window: int, bias: AttentionBias | RelativeKeys | None) -> None:
        """Raise PluginError if a decoder layer needs keys outside the model's window. Their blocks are freed."""
        if self.window is None or self._seen_by_decoder > window:
            sees = "all tokens" if self.window is None else f"{self._seen_by_decoder} tokens"
            raise PluginError(
                f"ModelShape.window is {window}, but a layer of the decoder sees {sees}: set it to the largest window "
                "of its layers, and to None if one of them has none"
            )
        if isinstance(bias, Tensor):
            raise PluginError(
                "ModelShape.window frees cache blocks, so a bias by absolute positions cannot be used: pass a "
                "RelativePositionBias, or set ModelShape.window to None"
            )

    def _of_own_heads(self, bias: AttentionBias, num_heads: int) -> AttentionBias:
        heads = slice(self._group.rank * num_heads, (self._group.rank + 1) * num_heads)
        if isinstance(bias, RelativePositionBias):
            return bias if bias.table.shape[1] == num_heads else bias.of_heads(heads)
        return bias if len(bias) in (1, num_heads) else bias[heads]


def _is_window(window: Any) -> bool:
    """True for a valid window of Attention."""
    if window is None:
        return True
    sides = window if isinstance(window, tuple) and len(window) == 2 else (window,)
    least = 1 if sides == (window,) else 0
    return all(isinstance(side, int) and not isinstance(side, bool) and side >= least for side in sides)
