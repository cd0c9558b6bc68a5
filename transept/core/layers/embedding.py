"""Token embeddings, and the vocabulary projection that may share their matrix."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transept.core.layers.linear import WHOLE, StackedParameter, matmul
from transept.core.layers.packed_weights import PackedWeight
from transept.core.parallel_group import ParallelGroup


class VocabParallelEmbedding(nn.Module):
    """Token id -> vector; weight [vocabulary, hidden], whose rows are split over the group.

    elsewhere: whether another pipeline stage embeds; see staging.py.
    """

    weight: nn.Parameter
    packed: PackedWeight | None  # set by packing.WeightPacker once the weight is loaded, where a head shares it

    def __init__(self, num_embeddings: int, embedding_dim: int, *, group: ParallelGroup) -> None:
        super().__init__()
        self.weight = _vocabulary(num_embeddings, embedding_dim, group)
        self.packed = None
        self.elsewhere = False
        self._group, self._shard = group, group.shard(num_embeddings, dim=0)
        self._embedding_dim, self._dtype = embedding_dim, self.weight.dtype

    def forward(self, token_ids: Tensor) -> Tensor:
        """token_ids: int64 of any shape, as a rule [tokens]. Returns [..., hidden], the same on every rank."""
        if self.elsewhere:
            return torch.zeros(*token_ids.shape, self._embedding_dim, dtype=self._dtype, device=token_ids.device)
        if self._group.size == 1:
            return self._rows(token_ids)
        own = token_ids - self._shard.first
        of_others = (own < 0) | (token_ids >= self._shard.stop)
        rows = self._rows(own.masked_fill_(of_others, 0)).masked_fill_(of_others[..., None], 0)
        return self._group.all_reduce(rows)  # of each token one rank has the vector, and the others zeros

    def _rows(self, indices: Tensor) -> Tensor:
        if self.packed is not None:
            rows = self.packed.rows(indices.flatten())
            return rows if indices.dim() == 1 else rows.view(*indices.shape, -1)
        return F.embedding(indices, self.weight)


class VocabParallelHead(nn.Module):
    """Hidden state -> logits over the vocabulary, whose rows are split over the group.

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
        self.weight = weight if weight is not None else _vocabulary(num_embeddings, embedding_dim, group)
        self.packed = None
        self._group, self._num_embeddings = group, num_embeddings

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden: [rows, hidden]. Returns logits [rows, vocabulary], the same on every rank."""
        return self._group.all_gather(matmul(hidden, self.packed or self.weight), self._num_embeddings)


def _vocabulary(num_embeddings: int, embedding_dim: int, group: ParallelGroup) -> nn.Parameter:
    """The rank's rows of a vocabulary's matrix."""
    shard = group.shard(num_embeddings, dim=0)
    shards = {WHOLE: shard} if group.size > 1 else None
    return StackedParameter.of((shard.stop - shard.first, embedding_dim), {}, shards)
