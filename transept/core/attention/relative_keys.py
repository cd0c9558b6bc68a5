"""Attention over keys to which embeddings of their distance are added: ``softmax(scale · Q(K + E)ᵀ) V``.

Unlike an additive bias, the term added to a score also depends on the query's content, so it is not a function of
positions. `Attention` computes it here, for encoders, with PyTorch's operations, for every backend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

QUERIES_AT_A_TIME = 512  # bounds the memory of the added scores: about 37 MB with 12 heads and 1500 keys


@dataclass(frozen=True, eq=False)
class RelativeKeys:
    """Learned embeddings of the distance from a query to a key (Shaw et al. 2018, section 3.2), the same for all heads.

    Encoders take it instead of a bias, because the added term also depends on the query. With every backend, PyTorch's
    operators compute it. Build one in each `forward`.

    table: [distances, head_dim], a parameter of the model. Row ``before + d`` is added to a key d tokens after its
        query. Distances below -before use the first row, and those beyond the last row use the last one.
    before: number of rows for keys before the query.
    """

    table: Tensor
    before: int

    def rows(self, first_query: int, num_queries: int, num_keys: int) -> Tensor:
        """Return row indices, int64 [queries, keys], for queries from first_query on and keys 0 to num_keys - 1."""
        positions = torch.arange(max(first_query + num_queries, num_keys), device=self.table.device)
        distance = positions[:num_keys] - positions[first_query : first_query + num_queries, None]
        return (distance + self.before).clamp_(0, len(self.table) - 1)


def attend_relative_keys(
    query: Tensor, key: Tensor, value: Tensor, starts: Sequence[int], scale: float, keys: RelativeKeys
) -> Tensor:
    """Compute self-attention of whole sequences, without a mask.

    query: [tokens, heads, head_dim]; key, value: [tokens, kv_heads, head_dim]; sequence i has the tokens
    ``starts[i] : starts[i + 1]``. Returns query's shape.
    """
    out = torch.empty_like(query)
    grouped = query.shape[1] != key.shape[1]
    for start, end in pairwise(starts):
        k, v = key[start:end].transpose(0, 1), value[start:end].transpose(0, 1)  # [kv_heads, keys, head_dim]
        for first in range(start, end, QUERIES_AT_A_TIME):
            last = min(first + QUERIES_AT_A_TIME, end)
            q = query[first:last].transpose(0, 1)  # [heads, queries, head_dim]
            by_row = q @ keys.table.t() * scale  # [heads, queries, distances]
            rows = keys.rows(first - start, last - first, end - start)
            added = by_row.gather(2, rows.expand(len(q), -1, -1))  # [heads, queries, keys]
            attended = F.scaled_dot_product_attention(
                q[None], k[None], v[None], attn_mask=added[None], scale=scale, enable_gqa=grouped
            )
            out[first:last] = attended[0].transpose(0, 1)
    return out
