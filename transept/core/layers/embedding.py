"""VocabParallelEmbedding, and VocabParallelHead, which may share its matrix."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transept.core.layers.linear import WHOLE, StackedParameter, matmul
from transept.core.layers.packed_weights import PackedWeight
from transept.core.parallel.group import ParallelGroup
from transept.errors import PluginError


class VocabParallelEmbedding(nn.Module):
    """Maps token ids to vectors, without scaling them.

    weight: [num_embeddings, embedding_dim], whose rows are split over the group.
    elsewhere: True if another pipeline stage embeds; see pipeline_partition.py.
    """

    weight: nn.Parameter
    packed: PackedWeight | None  # set by packing.WeightPacker once the weight is loaded, where a head shares it

    def __init__(self, num_embeddings: int, embedding_dim: int, *, group: ParallelGroup) -> None:
        super().__init__()
        self.weight = _vocabulary(num_embeddings, (embedding_dim,), group)
        self.packed = None
        self.elsewhere = False
        self._group, self._shard = group, group.shard(num_embeddings, dim=0)
        self._embedding_dim, self._dtype = embedding_dim, self.weight.dtype

    def forward(self, token_ids: Tensor, table: Tensor | None = None, positions: Tensor | None = None) -> Tensor:
        """Embed token_ids: int64 of any shape, usually [tokens]. Returns [..., hidden], the same on every rank.

        table: vectors to add, [size, hidden], such as position embeddings. A separate parameter or buffer, whole on
            every
            rank: not the weight of this or another parallel layer, which may be packed or sharded.
        positions: rows of the table, int64 of token_ids' shape, from 0.
        Raises PluginError if only one of the two is given, or if the table is sharded.
        """
        if (table is None) is not (positions is None):
            raise PluginError("an embedding is called with both a table and positions in it, or with neither")
        if isinstance(table, StackedParameter) and table.shards:
            raise PluginError("a table of positions is split over the ranks; make it an nn.Embedding, whole on each")
        if self._group.size == 1 and not self.elsewhere:
            return self._rows(token_ids, table, positions)
        if self.elsewhere:
            vectors = torch.zeros(*token_ids.shape, self._embedding_dim, dtype=self._dtype, device=token_ids.device)
        else:
            vectors = self._rows_of_all_ranks(token_ids)
        return vectors if table is None else (vectors + table[positions]).to(vectors.dtype)

    def _rows_of_all_ranks(self, token_ids: Tensor) -> Tensor:
        """Return the sum over ranks: one rank has the vector of a token, and the others add zeros."""
        own = token_ids - self._shard.first
        of_others = (own < 0) | (token_ids >= self._shard.stop)
        return self._group.all_reduce(self._rows(own.masked_fill_(of_others, 0)).masked_fill_(of_others[..., None], 0))

    def _rows(self, indices: Tensor, table: Tensor | None = None, places: Tensor | None = None) -> Tensor:
        if self.packed is not None and indices.dim() == 1:
            return self.packed.rows(indices, table, places)
        if self.packed is not None:
            rows = self.packed.rows(indices.flatten()).view(*indices.shape, -1)
        else:
            rows = F.embedding(indices, self.weight)
        return rows if table is None else (rows + table[places]).to(rows.dtype)


class VocabParallelHead(nn.Module):
    """Maps hidden states to logits over the vocabulary, whose rows are split over the group.

    weight: the matrix [vocabulary, hidden] of an embedding (tied), or None for a separate one.
    bias: True if the logits have a bias, [vocabulary].
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
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.weight = weight if weight is not None else _vocabulary(num_embeddings, (embedding_dim,), group)
        self.bias = _vocabulary(num_embeddings, (), group) if bias else None
        self.packed = None
        self._group, self._num_embeddings = group, num_embeddings

    def forward(self, hidden: Tensor) -> Tensor:
        """Return logits [rows, vocabulary], the same on every rank. hidden: [rows, hidden]."""
        return self._group.all_gather(matmul(hidden, self.packed or self.weight, self.bias), self._num_embeddings)


def _vocabulary(num_embeddings: int, row: tuple[int, ...], group: ParallelGroup) -> nn.Parameter:
    """Make the rank's rows of a vocabulary matrix, or of a bias. row: the shape of one."""
    shard = group.shard(num_embeddings, dim=0)
    shards = {WHOLE: shard} if group.size > 1 else None
    return StackedParameter.of((shard.stop - shard.first, *row), {}, shards)
