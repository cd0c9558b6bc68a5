"""The attention layer that models call; the backend behind it does the work."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor, nn

from transept.core.attention.backends.base import AttentionBackend
from transept.core.attention.biases import AttentionBias, RelativePositionBias
from transept.core.attention.metadata import AttentionMetadata, AttentionType
from transept.core.parallel_group import ParallelGroup
from transept.core.pipeline_stage import PipelineStage


@dataclass(frozen=True)
class LayerContext:
    """What the engine hands to every layer that a model builds."""

    attention_backend: AttentionBackend
    group: ParallelGroup
    stage: PipelineStage = field(default_factory=PipelineStage)


class Attention(nn.Module):
    """``softmax(scale · QKᵀ + bias) V`` over flattened tokens and the paged cache.

    scale: default 1/√head_dim.
    """

    def __init__(self, head_dim: int, *, scale: float | None = None, context: LayerContext) -> None:
        super().__init__()
        self.scale = head_dim**-0.5 if scale is None else scale
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
        bias: AttentionBias | None = None,
    ) -> Tensor:
        """Write new keys and values into the cache, then attend.

        query: [num_tokens, num_heads, head_dim].
        key, value: [num_new_keys, num_kv_heads, head_dim]; None for cross-attention when no encoder ran.
        kv_cache: this layer's [2, num_blocks, block_size, num_kv_heads, head_dim]; None for ENCODER.
        bias: by positions within a sequence, see `transept.core.attention.biases`; of this rank's heads or of all.
        Returns [num_tokens, num_heads * head_dim].
        """
        if bias is not None and self._group.size > 1:
            bias = self._of_own_heads(bias, query.shape[1])
        out = self.backend.forward(query, key, value, kv_cache, attn_metadata, attn_type, self.scale, bias)
        if attn_metadata.capture is not None and attn_type is AttentionType.ENCODER_DECODER:
            assert kv_cache is not None
            attn_metadata.capture.record(query, kv_cache, self.scale)
        return out.flatten(1)

    def _of_own_heads(self, bias: AttentionBias, num_heads: int) -> AttentionBias:
        heads = slice(self._group.rank * num_heads, (self._group.rank + 1) * num_heads)
        if isinstance(bias, RelativePositionBias):
            return bias if bias.table.shape[1] == num_heads else bias.of_heads(heads)
        return bias if len(bias) in (1, num_heads) else bias[heads]
