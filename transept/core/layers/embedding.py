"""Token embeddings, and the vocabulary projection that may share their matrix."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from transept.core.layers.linear import ParallelGroup, matmul
from transept.core.layers.quantization import QuantizedWeight


class VocabParallelEmbedding(nn.Module):
    """Token id -> vector; weight [vocabulary, hidden], whose rows would be split over the group.

    dtype: of the vectors; the weight may be stored narrower, or become a QuantizedWeight after it is loaded.
    """

    weight: nn.Parameter | QuantizedWeight

    def __init__(self, num_embeddings: int, embedding_dim: int, *, group: ParallelGroup) -> None:
        super().__init__()
        weight = torch.empty(num_embeddings // group.size, embedding_dim)
        self.weight, self.dtype = nn.Parameter(weight, requires_grad=False), weight.dtype

    def forward(self, token_ids: Tensor) -> Tensor:
        """token_ids: [tokens] int64. Returns [tokens, hidden]."""
        if isinstance(self.weight, QuantizedWeight):
            return self.weight.rows(token_ids)
        return F.embedding(token_ids, self.weight).to(self.dtype)


class VocabParallelHead(nn.Module):
    """Hidden state -> logits over the vocabulary.

    weight: a matrix [vocabulary, hidden] to share with an embedding (tied), or None for one of its own. It may become a
    QuantizedWeight after it is loaded.
    """

    weight: nn.Parameter | QuantizedWeight

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        *,
        group: ParallelGroup,
        weight: nn.Parameter | QuantizedWeight | None = None,
    ) -> None:
        super().__init__()
        rows = num_embeddings // group.size
        self.weight = weight if weight is not None else nn.Parameter(torch.empty(rows, embedding_dim), False)

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden: [rows, hidden]. Returns logits [rows, vocabulary]."""
        return matmul(hidden, self.weight)
