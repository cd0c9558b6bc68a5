"""AttentionBackend: the interface of the code that computes attention on one kind of device."""

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
    window: int | tuple[int, int] | None = None

    @property
    def reach(self) -> tuple[int, int] | None:
        """The most distant keys that a query sees in its window: so many tokens before it and after it."""
        if not isinstance(self.window, int):
            return self.window
        return (self.window - 1, 0) if self.attn_type is AttentionType.DECODER else (self.window, self.window)

    @property
    def new_keys_and_values(self) -> tuple[Tensor, Tensor]:
        """Keys and values of self-attention's tokens."""
        assert self.key is not None
        assert self.value is not None
        return self.key, self.value

    @property
    def cache(self) -> Tensor:
        """The cache by slots, [keys and values, slots, kv_heads, head_dim]; not for ENCODER."""
        assert self.kv_cache is not None
        return self.kv_cache.flatten(1, 2)

    @property
    def slots(self) -> Tensor:
        """Cache slots of self-attention's tokens, int64 [num_tokens]; only for DECODER."""
        assert self.metadata.slot_mapping is not None
        return self.metadata.slot_mapping


class AttentionBackend(ABC):
    """Computes attention for flattened tokens over the paged cache. One object serves all layers of a worker."""

    name: ClassVar[str]
    # Supported dtypes of keys and values in the cache, besides the dtype of activations.
    cache_dtypes: ClassVar[frozenset[torch.dtype]] = frozenset()
    replayable: ClassVar[bool] = False  # True if plan_decode makes decode steps that a CUDA graph can replay
    replays_encoders: ClassVar[bool] = False  # True if plan_encode does so for encoder passes

    def __init__(self, quantization: str | None = None, *, long_inputs: bool = False) -> None:
        """Make a backend for one worker. quantization: of the model's weights; attention may use it as well.

        long_inputs: True if the encoder reads audio or images.
        """
        self.quantization, self.long_inputs = quantization, long_inputs

    @classmethod
    @abstractmethod
    def reasons_against(cls, device: torch.device, dtype: torch.dtype, head_dim: int, block_size: int) -> list[str]:
        """Return why this backend cannot serve such a model on such a device, a sentence each; empty if it can."""

    @abstractmethod
    def plan(self, metadata: AttentionMetadata) -> None:
        """Prepare a step for the `forward` calls of all its layers, once. Sets ``metadata.plan``."""

    def plan_decode(self, metadata: AttentionMetadata, tables: DecodeTables) -> None:
        """Plan decode steps that read ``tables`` when they run, so a graph can replay them. Only if `replayable`."""
        raise NotImplementedError

    def plan_encode(self, metadata: AttentionMetadata, tables: EncodeTables) -> None:
        """Plan encoder passes that read ``tables`` when they run; only if `replays_encoders`."""
        raise NotImplementedError

    def decode_step(self, metadata: AttentionMetadata, bias: AttentionBias | None) -> DecodeStep | None:
        """Return the step for `kernels/cpu/fused/decoder_layer.py`; None if that kernel cannot compute it.

        bias: of self-attention.
        """
        return None

    @abstractmethod
    def write(self, key: Tensor, value: Tensor, kv_cache: Tensor, slots: Tensor) -> None:
        """Write keys and values of tokens into a layer's cache.

        key, value: [tokens, num_kv_heads, head_dim]. kv_cache: as in AttentionCall. slots: int64 [tokens].
        """

    @abstractmethod
    def forward(self, call: AttentionCall) -> Tensor:
        """Write new keys and values of self-attention into the cache, then attend.

        Returns [num_tokens, num_heads, head_dim].
        """
