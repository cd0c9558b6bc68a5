"""CrossAttentionCapture: cross-attention weights of some heads, for the requests of a step that ask for them.

PromptProbes makes it, and attention layers fill it. The weights are computed again, from the same queries and the keys
in the paged cache, because a backend's fused kernel does not return them. Other requests cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class CaptureRequest:
    """The heads that one request asks for.

    rows: its query rows. slots: [encoder tokens] int64, cache slots of its keys. heads: (layer, head) pairs.
    """

    rows: slice
    slots: Tensor
    heads: tuple[tuple[int, int], ...]


@dataclass
class CrossAttentionCapture:
    """The capture requests of one step, and the weights captured so far.

    layer_of: data pointer of a layer's cache -> number of the decoder layer. requests: by request id. rank: number of
    this process among those that share the heads; it captures only its own heads.
    weights: request id -> (layer, head) -> float32 [queries, encoder tokens].
    """

    layer_of: dict[int, int]
    requests: dict[str, CaptureRequest]
    rank: int = 0
    weights: dict[str, dict[tuple[int, int], Tensor]] = field(default_factory=dict)

    def record(self, query: Tensor, kv_cache: Tensor, scale: float, softcap: float | None = None) -> None:
        """Compute and keep the requested weights of this layer. softcap: of its scores.

        query: [num_tokens, heads, head_dim]. kv_cache: [2, num_blocks, block_size, kv_heads, head_dim], written.
        """
        layer = self.layer_of[kv_cache.data_ptr()]
        keys = kv_cache[0].flatten(0, 1)
        num_heads = query.shape[1]
        queries_a_key = num_heads // keys.shape[1]  # query heads for each key head
        for request_id, request in self.requests.items():
            for wanted_layer, wanted_head in request.heads:
                head = wanted_head - self.rank * num_heads
                if wanted_layer != layer or not 0 <= head < num_heads:
                    continue
                scores = scale * (
                    query[request.rows, head].float() @ keys[request.slots, head // queries_a_key].float().T
                )
                if softcap is not None:
                    scores = softcap * torch.tanh(scores / softcap)
                self.weights.setdefault(request_id, {})[layer, wanted_head] = torch.softmax(scores, dim=-1)
