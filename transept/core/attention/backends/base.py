"""AttentionBackend: what the attention layer asks of the code that computes attention on one kind of device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from transept.core.attention.biases import AttentionBias
from transept.core.attention.metadata import AttentionMetadata, AttentionType, DecodeTables, EncodeTables
from transept.core.kernels.dispatch import DecodeStep


@dataclass(slots=True)
class AttentionCall:
    """The arguments of one attention layer's call to a backend.

    query: [num_tokens, num_heads, head_dim].
    key, value: [num_new_keys, num_kv_heads, head_dim]; None for cross-attention, whose keys are in the cache.
    kv_cache: [2, num_blocks, block_size, num_kv_heads, head_dim]; None for ENCODER.
    softcap, window: see `transept.core.attention.attention.Attention`; no window for ENCODER_DECODER.
    """

    query: Tensor
    key: Tensor | None
    value: Tensor | None
    kv_cache: Tensor | None
    metadata: AttentionMetadata
    attn_type: AttentionType
    scale: float
    bias: AttentionBias | None = None
    softcap: float | None = None
    window: int | None = None


class AttentionBackend(ABC):
    """Computes attention for flattened tokens over the paged cache. One object serves all layers of a worker."""

    name: ClassVar[str]
    # Of keys and values in the cache, beside the dtype of what is computed.
    cache_dtypes: ClassVar[frozenset[torch.dtype]] = frozenset()
    replayable: ClassVar[bool] = False  # whether a step can read its tables where the last one did, by plan_decode
    replays_encoders: ClassVar[bool] = False  # whether a pass of the encoder can, by plan_encode

    def __init__(self, quantization: str | None = None, *, long_inputs: bool = False) -> None:
        """quantization: what the model's weights are rounded to; attention may then be rounded about as much.

        long_inputs: whether the encoder reads sound or images.
        """
        self.quantization, self.long_inputs = quantization, long_inputs

    @classmethod
    @abstractmethod
    def reasons_against(cls, device: torch.device, dtype: torch.dtype, head_dim: int, block_size: int) -> list[str]:
        """Why this backend cannot serve such a model on such a device, a sentence each; empty when it can."""

    @abstractmethod
    def plan(self, metadata: AttentionMetadata) -> None:
        """Derive, once a step, what every layer's `forward` of that step will need; kept in ``metadata.plan``."""

    def plan_decode(self, metadata: AttentionMetadata, tables: DecodeTables) -> None:
        """Plan steps of rows whose keys lie where ``tables`` say at the time; only if `replayable`."""
        raise NotImplementedError

    def plan_encode(self, metadata: AttentionMetadata, tables: EncodeTables) -> None:
        """Plan an encoder pass, whose rows are whose ``tables`` say at the time; only if `replays_encoders`."""
        raise NotImplementedError

    def decode_step(self, metadata: AttentionMetadata, bias: AttentionBias | None) -> DecodeStep | None:
        """The step for `kernels/cpu/fused/decoder_layer.py`, if that can compute it; bias: of self-attention."""
        return None

    @abstractmethod
    def write(self, key: Tensor, value: Tensor, kv_cache: Tensor, slots: Tensor) -> None:
        """Write keys and values of tokens into a layer's cache.

        key, value: [tokens, num_kv_heads, head_dim]. kv_cache: as in AttentionCall. slots: int64 [tokens], where in it.
        """

    @abstractmethod
    def forward(self, call: AttentionCall) -> Tensor:
        """Write new keys and values of self-attention into the cache, then attend.

        Returns [num_tokens, num_heads, head_dim].
        """
