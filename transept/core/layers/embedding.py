"""Token embeddings, and the vocabulary projection that may share their matrix."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transept.core.layers.linear import matmul
from transept.core.layers.packed_weights import PackedWeight
from transept.core.parallel_group import ParallelGroup


class VocabParallelEmbedding(nn.Module):
    """Token id -> vector; weight [vocabulary, hidden], whose rows would be split over the group."""

    weight: nn.Parameter
    packed: PackedWeight | None  # set by packing.WeightPacker once the weight is loaded, where a head shares it

    def __init__(self, num_embeddings: int, embedding_dim: int, *, group: ParallelGroup) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_embeddings // group.size, embedding_dim), requires_grad=False)
        self.packed = None

    def forward(self, token_ids: Tensor) -> Tensor:
        """token_ids: [tokens] int64. Returns [tokens, hidden]."""
        if self.packed is not None:
            return self.packed.rows(token_ids)
        return F.embedding(token_ids, self.weight)


class VocabParallelHead(nn.Module):
    """Hidden state -> logits over the vocabulary.

    weight: a matrix [vocabulary, hidden] to share with an embedding (tied), or None for one of its own.
    """

    weight: nn.Parameter
    packed: PackedWeight | None  # set by packing.WeightPacker once the weight is loaded

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        group: ParallelGroup,
        weight: nn.Parameter | None = None,
    ) -> None:
        super().__init__()
        rows = num_embeddings // group.size
        self.weight = weight if weight is not None else nn.Parameter(torch.empty(rows, embedding_dim), False)
        self.packed = None

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden: [rows, hidden]. Returns logits [rows, vocabulary]."""
        return matmul(hidden, self.packed or self.weight)
