"""Embeddings of requests that only encode: pooled on the device, then copied to the host."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from transept.core.kernels.transfer import Download
from transept.core.request.pooling import Pooling

SHORTEST = 1e-12  # a vector is divided by at least this, as by torch.nn.functional.normalize


def pooled(hidden: Tensor, pooling: Pooling) -> Tensor:
    """Return the embedding of one input, float32: [hidden], or [tokens, hidden] without pooling.

    hidden: [tokens, hidden], the rows of this input alone, so that the result does not depend on others.
    """
    match pooling.pooling:
        case "mean":
            vectors = hidden.mean(dim=0, dtype=torch.float64)
        case "cls":
            vectors = hidden[0]
        case "last":
            vectors = hidden[-1]
        case "max":
            vectors = hidden.amax(dim=0)
        case "none":
            vectors = hidden
    if pooling.normalize:
        vectors = vectors.double()
        vectors = vectors / vectors.norm(dim=-1, keepdim=True).clamp_min(SHORTEST)
    return vectors.to(torch.float32, copy=True)  # never a view, which would keep the whole output in memory


class Embeddings:
    """Embeddings on the device, by encode id, with an asynchronous copy to the host."""

    def __init__(self, embeddings: dict[int, Tensor]) -> None:
        self._encode_ids = list(embeddings)
        self._download = Download(list(embeddings.values()))

    def collect(self) -> dict[int, npt.NDArray[np.float32]]:
        """Wait for the copy. Returns the embeddings by encode id."""
        return {key: part.numpy() for key, part in zip(self._encode_ids, self._download.collect(), strict=True)}
