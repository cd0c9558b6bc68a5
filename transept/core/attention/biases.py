"""Additive attention biases: ``softmax(scale · QKᵀ + A) V``.

A bias is either a tensor or a `RelativePositionBias`. Both are functions of a query's and a key's position within their
own sequence, so one bias serves all sequences of a flattened batch, of any lengths.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class RelativePositionBias:
    """T5's learned bias by bucketed distance (Raffel et al. 2020, section 2.1).

    Build one in each `forward`.

    table: [num_buckets, num_heads], a parameter of the model.
    bidirectional: True in encoders: half of the buckets are for keys after the query. False in decoders: those keys,
        which the causal mask hides, share bucket 0.
    max_distance: distances from here on share the last bucket.
    """

    table: Tensor
    bidirectional: bool
    max_distance: int = 128
    _of_heads: dict[tuple[int, int], RelativePositionBias] = field(default_factory=dict, init=False, repr=False)

    def of_heads(self, heads: slice) -> RelativePositionBias:
        """Return the bias of some heads. Always the same object, because backends cache by a bias's identity."""
        key = (heads.start, heads.stop)
        if key not in self._of_heads:
            self._of_heads[key] = replace(self, table=self.table[:, heads])
        return self._of_heads[key]

    def buckets(self, distance: Tensor) -> Tensor:
        """Return bucket numbers. distance: key position minus query position, int64, any shape, which is kept."""
        num_buckets = self.table.shape[0]
        first = torch.zeros_like(distance)
        if self.bidirectional:
            num_buckets //= 2
            first = (distance > 0).long() * num_buckets
            distance = distance.abs()
        else:
            distance = -distance.clamp(max=0)
        exact = num_buckets // 2  # near distances have a bucket each, far ones logarithmic buckets
        scale = (num_buckets - exact) / math.log(self.max_distance / exact)
        far = exact + (torch.log(distance.clamp(min=1).float() / exact) * scale).long()
        return first + torch.where(distance < exact, distance, far.clamp(max=num_buckets - 1))

    def by_distance(self, distances: Tensor) -> Tensor:
        """Return the bias [num_heads, distances]. distances: key position minus query position, [distances], int64."""
        return self.table[self.buckets(distances)].t().contiguous()

    def materialize(self, query_pos: Tensor, key_pos: Tensor) -> Tensor:
        """Return the dense bias between absolute positions of one sequence.

        query_pos: [num_queries], key_pos: [num_keys], int64.
        Returns [num_heads, num_queries, num_keys] in the table's dtype.
        """
        distance = key_pos[None, :] - query_pos[:, None]
        return self.table[self.buckets(distance)].permute(2, 0, 1)


# A tensor bias is [num_heads, >= queries, >= keys], indexed by absolute positions within a sequence.
AttentionBias: TypeAlias = Tensor | RelativePositionBias
"""An additive bias of attention's scores: a RelativePositionBias, or a tensor [num_heads, queries, keys].

A tensor is indexed by positions within a sequence, and must cover the longest one. Both serve all sequences.
"""


def bias_block(bias: AttentionBias, first_query: int, num_queries: int, num_keys: int) -> Tensor:
    """Return the bias of queries first_query, first_query + 1, … against keys 0 to num_keys - 1.

    Returns [num_heads, num_queries, num_keys].
    """
    if not isinstance(bias, RelativePositionBias):
        return bias[:, first_query : first_query + num_queries, :num_keys]
    # Compute the bias once for each distance that occurs, not for each pair. Each query's distances begin one column
    # before its predecessor's, so the rows are sliding windows, in reverse order.
    distances = torch.arange(1 - first_query - num_queries, num_keys - first_query, device=bias.table.device)
    return bias.by_distance(distances).unfold(1, num_keys, 1).flip(1)
