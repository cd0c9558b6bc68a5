"""Ranks that exchange tensors through memory, here each a thread with a mapping of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from thread_ranks import on_threads

from transept.core.parallel import shared_memory
from transept.core.parallel.connection import anonymous_memory
from transept.core.parallel.group import ExchangeError, ParallelGroup
from transept.core.parallel.shared_memory import SLOT_BYTES, SharedMemoryExchange, memory_bytes

pytestmark = pytest.mark.skipif(not shared_memory.serves(), reason="gloo is used on this system")

Run = Callable[[Callable[[SharedMemoryExchange, int], Any]], list[Any]]


@pytest.fixture(params=[2, 3])
def on_ranks(request: pytest.FixtureRequest) -> Run:
    memory = anonymous_memory(memory_bytes(request.param))
    exchanges = [SharedMemoryExchange(rank, request.param, os.dup(memory)) for rank in range(request.param)]
    os.close(memory)

    def run(function: Callable[[SharedMemoryExchange, int], Any]) -> list[Any]:
        return on_threads([partial(function, exchange, rank) for rank, exchange in enumerate(exchanges)])

    return run


def test_everyone_gets_what_everyone_has_call_after_call(on_ranks: Run) -> None:
    """Calls of many sizes, dtypes and shapes, transposed ones among them, with ranks that are late in turn."""

    def values(rank: int, call: int) -> torch.Tensor:
        dtype = (torch.float32, torch.bfloat16, torch.int64)[call % 3]
        made = torch.arange(1 + call % 7 * 300).to(dtype) + rank * 5 + call % 11
        return made.view(-1, 1).expand(-1, 1 + call % 3).T if call % 2 else made

    def run(exchange: SharedMemoryExchange, rank: int) -> int:
        for call in range(600):
            if call % 50 == rank:
                torch.ones(300, 300) @ torch.ones(300, 300)
            gathered = exchange.gather(values(rank, call))
            for other, tensor in enumerate(gathered):
                assert tensor.dtype is values(other, call).dtype
                assert torch.equal(tensor, values(other, call))
        return len(gathered)

    sizes = on_ranks(run)
    assert sizes == [len(sizes)] * len(sizes)


def test_what_is_larger_than_a_slot_comes_in_pieces(on_ranks: Run) -> None:
    count = SLOT_BYTES // 4 * 2 + 5

    def run(exchange: SharedMemoryExchange, rank: int) -> bool:
        gathered = exchange.gather(torch.arange(count, dtype=torch.float32).view(1, -1) + rank)
        return all(
            tensor.shape == (1, count) and torch.equal(tensor[0], torch.arange(count, dtype=torch.float32) + other)
            for other, tensor in enumerate(gathered)
        )

    assert all(on_ranks(run))


@pytest.mark.parametrize("shape", [(7, 3), (1501, 512), (2, SLOT_BYTES // 4 + 1), (3, 5, 70_000)])
def test_sums_of_many_rows_are_made_piece_by_piece(on_ranks: Run, shape: tuple[int, ...]) -> None:
    values = [torch.randn(shape, generator=torch.Generator().manual_seed(rank)) for rank in range(3)]

    def run(exchange: SharedMemoryExchange, rank: int) -> torch.Tensor:
        return ParallelGroup(rank, len(exchange.gather(torch.zeros(1))), exchange).all_reduce(values[rank])

    sums = on_ranks(run)
    expected = values[0] + values[1] + (values[2] if len(sums) == 3 else 0)
    assert all(torch.equal(each, expected) for each in sums)


def test_ranks_that_are_out_of_step_are_told(on_ranks: Run) -> None:
    def run(exchange: SharedMemoryExchange, rank: int) -> str:
        exchange.gather(torch.zeros(3))
        with pytest.raises(ExchangeError, match="out of step") as raised:
            exchange.gather(torch.zeros(4 if rank else 5))
        return str(raised.value)

    # Of three ranks the two that agree notice only that the other one does not.
    assert len(on_ranks(run)) >= 2
