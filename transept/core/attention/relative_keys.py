"""Attention with keys for distances: ``softmax(scale · ((Q + u) Kᵀ + (Q + v) Rᵀ)) V``, R by the distance to a key.

Unlike an additive bias, the added term also depends on the query's content, so it is not a function of positions.
`Attention` computes it here, for encoders, by a CPU's kernel or with PyTorch's operations, for every backend.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

from transept.core.attention.backends.base import AttentionCall
from transept.core.kernels.dispatch import RELATIVE_ATTENTION

QUERIES_AT_A_TIME = 512  # bounds the memory of the added scores: about 37 MB with 12 heads and 1500 keys


@dataclass(frozen=True, eq=False)
class RelativeKeys:
    """Keys of the distance from a query to a key (Shaw et al. 2018, section 3.2; Dai et al. 2019, section 3.3).

    Encoders take it instead of a bias, because the added term also depends on the query. Build one in each `forward`.

    table: [distances, head_dim], the same for all heads, or [heads, distances, head_dim]. Row ``before + d`` is for a
        key d tokens after its query. Distances below -before use the first row, and those beyond the last row use the
        last one.
    before: number of rows for keys before the query.
    content_bias, position_bias: [heads, head_dim], added to queries before they are multiplied by keys and by the
        table: ``u`` and ``v`` of Transformer-XL; default none.
    """

    table: Tensor
    before: int
    content_bias: Tensor | None = None
    position_bias: Tensor | None = None

    def of_distances(self, num_tokens: int) -> Tensor:
        """Return rows of the distances of a sequence's tokens, from 1 - num_tokens on: [heads or 1, 2 n - 1, dim]."""
        table = self.table if self.table.dim() == 3 else self.table[None]
        first, stop = self.before - num_tokens + 1, self.before + num_tokens
        if first >= 0 and stop <= table.shape[1]:
            return table[:, first:stop]
        rows = torch.arange(first, stop, device=table.device).clamp_(0, table.shape[1] - 1)
        return table[:, rows]


def attend_relative_keys(call: AttentionCall, keys: RelativeKeys, quantization: str | None = None) -> Tensor:
    """Compute an encoder's self-attention, without a bias or a soft cap. quantization: the engine's.

    Returns the query's shape.
    """
    query, (key, value) = call.query, call.new_keys_and_values
    out, reach = torch.empty_like(query), call.reach
    attend = RELATIVE_ATTENTION.serving(query, quantization=quantization)
    for start, end in pairwise(call.metadata.encoder_start_loc):
        given, table = (query[start:end], key[start:end], value[start:end]), keys.of_distances(end - start)
        if attend is not None:
            attend(
                *(*given, call.scale, out[start:end]),
                bias=None if reach is None else outside(reach, end - start, query),
                window=reach,
                position_keys=table,
                content_bias=keys.content_bias,
                position_bias=keys.position_bias,
            )
        else:
            out[start:end] = _attend_sequence(*given, call.scale, table, keys, reach)
    return out


def outside(reach: tuple[int, int], num_tokens: int, like: Tensor) -> Tensor:
    """Return -inf outside of a window and 0 inside, by query position minus key position, [1, 2 · num_tokens - 1]."""
    distances = torch.arange(1 - num_tokens, num_tokens, device=like.device)
    hidden = (distances > reach[0]) | (distances < -reach[1])
    return like.new_zeros(1, len(distances)).masked_fill_(hidden, float("-inf"))


def _attend_sequence(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    table: Tensor,
    keys: RelativeKeys,
    reach: tuple[int, int] | None,
) -> Tensor:
    """Compute the attention of one sequence. table: see RelativeKeys.of_distances. reach: see AttentionCall."""
    hidden = None if reach is None else outside(reach, len(query), query).flip(1)  # by key minus query, like the table
    grouped, num_tokens = query.shape[1] != key.shape[1], len(query)
    content, by_position = (
        (query if bias is None else query + bias).transpose(0, 1) for bias in (keys.content_bias, keys.position_bias)
    )  # each [heads, tokens, head_dim]
    k, v, parts = key.transpose(0, 1), value.transpose(0, 1), []  # [kv_heads, keys, head_dim]
    for first in range(0, num_tokens, QUERIES_AT_A_TIME):
        last = min(first + QUERIES_AT_A_TIME, num_tokens)
        columns = slice(num_tokens - last, 2 * num_tokens - 1 - first)
        by_distance = by_position[:, first:last] @ table[:, columns].transpose(1, 2) * scale
        if hidden is not None:
            by_distance += hidden[:, columns]
        added = _shifted(by_distance, num_tokens)
        attended = F.scaled_dot_product_attention(
            content[None, :, first:last], k[None], v[None], attn_mask=added[None], scale=scale, enable_gqa=grouped
        )
        parts.append(attended[0].transpose(0, 1))
    return torch.cat(parts)


def _shifted(by_distance: Tensor, num_keys: int) -> Tensor:
    """Return [heads, queries, keys]: the last query's first columns, and of each query before it, from a column later.

    by_distance: [heads, queries, keys + queries - 1], contiguous.
    """
    heads, queries, columns = by_distance.shape
    strides = (queries * columns, columns - 1, 1)
    return by_distance.as_strided((heads, queries, num_keys), strides, queries - 1).contiguous()
