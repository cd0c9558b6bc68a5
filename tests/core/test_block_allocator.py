"""Block allocator: what it hands out, against a plain set of free blocks."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from transept.core.scheduling.block_allocator import BlockAllocator, BlockError


def runs(blocks: set[int]) -> list[int]:
    """Lengths of the maximal runs of consecutive numbers, longest first."""
    starts = [block for block in blocks if block - 1 not in blocks]
    return sorted((next(n for n in range(1, len(blocks) + 1) if s + n not in blocks) for s in starts), reverse=True)


def fewest_runs(free: set[int], count: int) -> int:
    pieces = 0
    for length in runs(free):
        if count <= 0:
            break
        count -= length
        pieces += 1
    return pieces


class AllocatorMachine(RuleBasedStateMachine):
    @initialize(size=st.integers(0, 24))
    def make(self, size: int) -> None:
        self.pool = BlockAllocator(size)
        self.tables: list[list[int]] = []

    @property
    def owners(self) -> Counter[int]:
        return Counter(block for table in self.tables for block in table)

    @property
    def free(self) -> set[int]:
        return set(range(self.pool.num_blocks)) - set(self.owners)

    @rule(count=st.integers(0, 10), low=st.booleans())
    def allocate(self, count: int, low: bool) -> None:
        take = self.pool.allocate_low if low else self.pool.allocate_high
        free = self.free
        if count > len(free):
            with pytest.raises(BlockError, match=f"{count} blocks .* only {len(free)}"):
                take(count)
            return
        table = take(count)
        assert table == sorted(set(table) & free)
        assert len(table) == count
        # Adjacent numbers may come from two pieces only if these touch, and free runs never do.
        assert len(runs(set(table))) == fewest_runs(free, count)
        if len(runs(set(table))) == 1:
            fitting = [b for b in free if all(b + i in free for i in range(count))]
            assert table[0] == (min(fitting) if low else max(fitting))
        self.tables.append(table)

    @precondition(lambda self: any(self.tables))
    @rule(data=st.data())
    def append(self, data: st.DataObject) -> None:
        table = data.draw(st.sampled_from([table for table in self.tables if table]))
        free = self.free
        if not free:
            with pytest.raises(BlockError):
                self.pool.allocate_after(table[-1])
            return
        block = self.pool.allocate_after(table[-1])
        assert block == (table[-1] + 1 if table[-1] + 1 in free else max(free))
        table.append(block)

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        table = data.draw(st.sampled_from(self.tables))
        self.pool.share(table)
        self.tables.append(list(table))

    @precondition(lambda self: self.tables)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        table = self.tables.pop(data.draw(st.integers(0, len(self.tables) - 1)))
        self.pool.free(data.draw(st.permutations(table)))

    @precondition(lambda self: self.free)
    @rule(data=st.data())
    def misuse(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(sorted(self.free)))
        with pytest.raises(BlockError, match="has no owner"):
            self.pool.free([block])
        with pytest.raises(BlockError, match="has no owner"):
            self.pool.share([block])

    @rule()
    def reset(self) -> None:
        self.pool.reset()
        self.tables.clear()

    @invariant()
    def balanced(self) -> None:
        if not hasattr(self, "pool"):
            return
        owners = self.owners
        self.pool.check(owners)
        assert self.pool.num_free == len(self.free)
        assert all(self.pool.ref_count(block) == owners[block] for block in range(self.pool.num_blocks))


TestAllocator = AllocatorMachine.TestCase
TestAllocator.settings = settings(max_examples=100, stateful_step_count=40)


def test_check_sees_a_block_owned_more_often_than_counted() -> None:
    pool = BlockAllocator(4)
    (block,) = pool.allocate_low(1)
    pool.check({block: 1})
    for owners in ({}, {block: 2}, {block: 1, block + 1: 1}):
        with pytest.raises(BlockError, match="tables hold"):
            pool.check(owners)


def test_small_tables_leave_the_room_for_large_ones_whole() -> None:
    pool = BlockAllocator(100)
    cross = [pool.allocate_low(30) for _ in range(3)]
    small = [pool.allocate_high(1) for _ in range(4)]
    for table in small:
        table.append(pool.allocate_after(table[-1]))
    pool.free(cross[1])
    assert pool.allocate_low(30) == cross[1]
