"""ParallelGroup: the ranks that share a model's layers, their shards of weights, and sums over all ranks.

Layers receive it and shard themselves by it (Shoeybi et al. 2019, "Megatron-LM"); an `Exchange` moves the tensors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from transept.errors import ParameterError, TranseptError, message_of
from transept.options import refusal


class ExchangeError(TranseptError):
    """Ranks can no longer exchange tensors: one has gone, or computes another step. No rank can continue."""


class Exchange(ABC):
    """Exchanges tensors between the ranks of a group. Every rank makes the same calls in the same order.

    piece_bytes: maximum bytes of a tensor that one exchange should move; None: no limit.
    """

    piece_bytes: int | None = None

    @abstractmethod
    def gather(self, x: Tensor) -> Sequence[Tensor]:
        """Return every rank's x, in the order of ranks, to every rank. All have one shape and dtype.

        The tensors are valid until the next call. Raises ExchangeError.
        """


@dataclass(frozen=True)
class Shard:
    """A rank's part of a weight that has `total` rows (dim 0) or columns (dim 1): those from first to stop."""

    dim: int
    first: int
    stop: int
    total: int

    def of(self, weight: Tensor) -> Tensor:
        """Return the rank's part of a whole weight, as a view."""
        return weight.narrow(self.dim, self.first, self.stop - self.first)


@dataclass(frozen=True)
class ParallelGroup:
    """The ranks that share a model's layers, `tensor_parallel_size` of them.

    rank: number of this process, from 0.
    size: number of ranks.
    exchange: between them; None for a single rank, and if layers are built only to check that they can be sharded.
        Models do not use it.

    Raises ParameterError for a rank outside the group.
    """

    rank: int = 0
    size: int = 1
    exchange: Exchange | None = None

    def __post_init__(self) -> None:
        if self.size < 1 or not 0 <= self.rank < self.size:
            raise refusal(self, f"there is no {{rank}} {self.rank} in a group of {self.size}", "rank")

    def share(self, total: int, what: str) -> int:
        """Return each rank's share of `total` equal parts, such as heads.

        what: their name, for the message. Raises ParameterError if `size` does not divide `total`.
        """
        if total % self.size:
            raise ParameterError(
                f"{{tensor_parallel_size=}} does not divide a layer's {total} {what}, which these sizes do: "
                f"{', '.join(str(size) for size in range(1, total + 1) if total % size == 0)}",
                param="tensor_parallel_size",
                value=self.size,
            )
        return total // self.size

    def shard(self, total: int, dim: int) -> Shard:
        """Return the rank's part of `total` rows or columns. Parts differ by one if `size` does not divide `total`."""
        first, stop = (index * total // self.size for index in (self.rank, self.rank + 1))
        return Shard(dim, first, stop, total)

    def all_reduce(self, x: Tensor) -> Tensor:
        """Return the sum of every rank's x, of any shape, added in the order of ranks: always the same bits."""
        if self.size == 1:
            return x
        most = None if self.exchange is None else self.exchange.piece_bytes
        if most is None or x.nbytes <= most:
            return self._sum(x, torch.empty_like(x))
        total, count = torch.empty_like(x), max(1, most * len(x) // x.nbytes)
        for piece, sums in zip(x.split(count), total.split(count), strict=True):
            self._sum(piece, sums)
        return total

    def _sum(self, x: Tensor, total: Tensor) -> Tensor:
        first, second, *others = self._gather(x)
        torch.add(first, second, out=total)
        for other in others:
            total += other
        return total

    def all_gather(self, x: Tensor, total: int) -> Tensor:
        """Put the columns of all ranks side by side. x: [rows, columns of `shard(total, 1)`]. Returns [rows, total]."""
        if self.size == 1:
            return x
        shards = [ParallelGroup(rank, self.size).shard(total, 1) for rank in range(self.size)]
        most = max(shard.stop - shard.first for shard in shards)
        parts = self._gather(F.pad(x, (0, most - x.shape[1])))
        return torch.cat(
            [part[:, : shard.stop - shard.first] for part, shard in zip(parts, shards, strict=True)], dim=1
        )

    def all_gather_int(self, value: int) -> list[int]:
        """Return every rank's value, in the order of ranks."""
        if self.size == 1:
            return [value]
        return [int(each) for each in self._gather(torch.tensor([value], dtype=torch.int64))]

    def _gather(self, x: Tensor) -> Sequence[Tensor]:
        if self.exchange is None:
            raise RuntimeError(f"rank {self.rank} of {self.size} has no exchange with the others")
        return self.exchange.gather(x)


class TorchExchange(Exchange):
    """Uses a process group of torch.distributed: gloo on CPUs, NCCL on GPUs."""

    def __init__(self, process_group: Any) -> None:
        self._process_group, self._size = process_group, process_group.size()

    def gather(self, x: Tensor) -> Sequence[Tensor]:
        """See Exchange."""
        x = x.contiguous()
        parts = [torch.empty_like(x) for _ in range(self._size)]
        try:
            torch.distributed.all_gather(parts, x, group=self._process_group)
        except RuntimeError as error:
            raise ExchangeError(f"the other ranks are out of reach: {message_of(error)}") from error
        return parts
