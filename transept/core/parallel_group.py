"""The processes that share a model's layers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ParallelGroup:
    """The processes that share a model's layers. Only size 1 exists so far."""

    rank: int = 0
    size: int = 1

    def __post_init__(self) -> None:
        if self.size != 1:
            raise NotImplementedError("tensor parallelism is not there yet: ParallelGroup.size must be 1")
