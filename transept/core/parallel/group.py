"""The processes that share a model's layers: which part of a weight each holds, and how they add up what they compute.

Layers are told their group and cut themselves by it (Shoeybi et al. 2019, "Megatron-LM"); `Exchange` moves the numbers.
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


class ExchangeError(TranseptError):
    """Ranks cannot exchange anything any more: one has gone, or computes something else. None can go on."""


class Exchange(ABC):
    """How the ranks of a group give each other their tensors. Every rank makes the same calls in the same order.

    piece_bytes: what is best exchanged at a time; None: whatever there is.
    """

    piece_bytes: int | None = None

    @abstractmethod
    def gather(self, x: Tensor) -> Sequence[Tensor]:
        """Every rank's x, in the order of ranks, which every rank gets; they have one shape and dtype.

        The tensors hold until the next call. Raises ExchangeError.
        """


@dataclass(frozen=True)
class Shard:
    """What a rank holds of a weight that has `total` rows (dim 0) or columns (dim 1): those from first to stop."""

    dim: int
    first: int
    stop: int
    total: int

    def of(self, weight: Tensor) -> Tensor:
        """The rank's part of a whole weight, which is not copied."""
        return weight.narrow(self.dim, self.first, self.stop - self.first)


@dataclass(frozen=True)
class ParallelGroup:
    """The processes that share a model's layers.

    rank: this one's number, from 0. size: how many there are. exchange: between them; None in a group of one, and where
    layers are built only to see whether they can be cut.

    Raises ParameterError for a rank outside the group.
    """

    rank: int = 0
    size: int = 1
    exchange: Exchange | None = None

    def __post_init__(self) -> None:
        if self.size < 1 or not 0 <= self.rank < self.size:
            raise ParameterError(f"there is no rank {self.rank} in a group of {self.size}")

    def share(self, total: int, what: str) -> int:
        """How many of `total` equal things each rank has.

        what: their name, for the message. Raises ParameterError where the group does not divide them.
        """
        if total % self.size:
            raise ParameterError(
                f"tensor_parallel_size={self.size} does not divide a layer's {total} {what}, which these sizes do: "
                f"{', '.join(str(size) for size in range(1, total + 1) if total % size == 0)}"
            )
        return total // self.size

    def shard(self, total: int, dim: int) -> Shard:
        """The rank's part of `total` rows or columns. Where they do not divide, the first ranks have one more each."""
        first, stop = (index * total // self.size for index in (self.rank, self.rank + 1))
        return Shard(dim, first, stop, total)

    def all_reduce(self, x: Tensor) -> Tensor:
        """The sum of every rank's x, any shape, added in the order of ranks: it depends on nothing else."""
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
        """Columns of all ranks side by side. x: [rows, columns of `shard(total, 1)`]. Returns [rows, total]."""
        if self.size == 1:
            return x
        shards = [ParallelGroup(rank, self.size).shard(total, 1) for rank in range(self.size)]
        most = max(shard.stop - shard.first for shard in shards)
        parts = self._gather(F.pad(x, (0, most - x.shape[1])))
        return torch.cat(
            [part[:, : shard.stop - shard.first] for part, shard in zip(parts, shards, strict=True)], dim=1
        )

    def all_agree(self, value: int) -> list[int]:
        """Every rank's value, in the order of ranks."""
        if self.size == 1:
            return [value]
        return [int(each) for each in self._gather(torch.tensor([value], dtype=torch.int64))]

    def _gather(self, x: Tensor) -> Sequence[Tensor]:
        if self.exchange is None:
            raise RuntimeError(f"rank {self.rank} of {self.size} has no exchange with the others")
        return self.exchange.gather(x)


class TorchExchange(Exchange):
    """By a process group of torch.distributed: gloo on CPUs, NCCL on GPUs."""

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
