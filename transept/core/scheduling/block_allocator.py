"""A pool of equal blocks on one device, handed out in runs of consecutive numbers.

Used by BlockSpaceManager alone, once for the device and once for the host. Knows block numbers and reference counts,
never what a block holds.

Runs matter because a table of consecutive blocks can be read as one view of the cache, without a gather. Cross
tables, long and of fixed length, are taken from the low end of the pool; self tables, short and growing block by
block, from the high end, so that the small pieces do not break up the room for the large ones.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping


class BlockError(AssertionError):
    """The pool's books do not balance, or blocks were taken without asking first: a bug, never a user's mistake."""


class BlockAllocator:
    """Blocks 0 .. num_blocks - 1 with a reference count each. Every method but `check` costs time in the free runs.

    num_free: blocks that nobody owns.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.reset()

    def reset(self) -> None:
        """Make every block free."""
        self.num_free = self.num_blocks
        self._ref_counts = [0] * self.num_blocks
        # The free runs, ascending; two never touch, since `free` merges them.
        self._starts = [0] if self.num_blocks else []
        self._lengths = [self.num_blocks] if self.num_blocks else []

    def allocate_low(self, count: int) -> list[int]:
        """`count` blocks as the lowest free run that is long enough, else as the fewest runs; ascending.

        Raises BlockError when fewer are free.
        """
        for index, length in enumerate(self._lengths):
            if length >= count:
                return self._take(index, self._starts[index], count)
        return self._take_longest(count)

    def allocate_high(self, count: int) -> list[int]:
        """`count` blocks as the highest free run that is long enough, else as the fewest runs; ascending.

        Raises BlockError when fewer are free.
        """
        for index in range(len(self._lengths) - 1, -1, -1):
            length = self._lengths[index]
            if length >= count:
                return self._take(index, self._starts[index] + length - count, count)
        return self._take_longest(count)

    def allocate_after(self, block: int) -> int:
        """One block to follow an owned `block`: the next number if it is free, else one from the high end.

        Raises BlockError when none is free.
        """
        index = bisect_left(self._starts, block + 1)
        if index < len(self._starts) and self._starts[index] == block + 1:
            return self._take(index, block + 1, 1)[0]
        return self.allocate_high(1)[0]

    def ref_count(self, block: int) -> int:
        """How many tables own the block."""
        return self._ref_counts[block]

    def share(self, blocks: Iterable[int]) -> None:
        """Count one more owner of each block. Raises BlockError for a free one."""
        for block in blocks:
            if not self._ref_counts[block]:
                raise BlockError(f"block {block} is shared but nobody owns it")
            self._ref_counts[block] += 1

    def free(self, blocks: Iterable[int]) -> None:
        """Count one owner less of each block; those with none left become free. Raises BlockError for a free one."""
        start = length = 0  # the run of consecutive freed blocks gathered so far
        for block in blocks:
            owners_left = self._ref_counts[block] - 1
            if owners_left < 0:
                raise BlockError(f"block {block} is freed but nobody owns it")
            self._ref_counts[block] = owners_left
            if owners_left:
                continue
            if length and block == start + length:
                length += 1
                continue
            if length:
                self._give_back(start, length)
            start, length = block, 1
        if length:
            self._give_back(start, length)

    def check(self, owners: Mapping[int, int]) -> None:
        """Raise BlockError unless every block has as many owners as counted, and owned and free blocks are the pool.

        owners: block -> how many tables hold it; a block that is not there has none.
        """
        counted = {block: count for block, count in enumerate(self._ref_counts) if count}
        if counted != dict(owners):
            raise BlockError(f"owned blocks are counted as {counted}, but tables hold {dict(owners)}")
        free: list[int] = []
        end = -1  # end of the run before; a gap must follow it
        for start, length in zip(self._starts, self._lengths, strict=True):
            if start <= end or length < 1:
                raise BlockError(f"free runs are out of order or unmerged: {self._starts} of lengths {self._lengths}")
            end = start + length
            free.extend(range(start, end))
        if len(free) != self.num_free or sorted([*free, *counted]) != list(range(self.num_blocks)):
            raise BlockError(f"{self.num_free} free blocks {free} and owned blocks {counted} do not make up the pool")

    def _take(self, index: int, start: int, count: int) -> list[int]:
        """Take [start, start + count) out of the free run `index`."""
        if not count:
            return []
        #  the run    |--- before ---|--- count ---|--- after ---|
        before = start - self._starts[index]
        after = self._lengths[index] - before - count
        if before:
            self._lengths[index] = before
            if after:
                self._starts.insert(index + 1, start + count)
                self._lengths.insert(index + 1, after)
        elif after:
            self._starts[index] = start + count
            self._lengths[index] = after
        else:
            del self._starts[index], self._lengths[index]
        self._ref_counts[start : start + count] = [1] * count
        self.num_free -= count
        return list(range(start, start + count))

    def _take_longest(self, count: int) -> list[int]:
        """`count` blocks from the longest runs first, which makes the runs as few as they can be."""
        if count > self.num_free:
            raise BlockError(f"{count} blocks are taken but only {self.num_free} are free; ask before taking")
        blocks: list[int] = []
        while len(blocks) < count:
            index = max(range(len(self._lengths)), key=self._lengths.__getitem__)
            piece = min(count - len(blocks), self._lengths[index])
            blocks += self._take(index, self._starts[index], piece)
        return sorted(blocks)

    def _give_back(self, start: int, length: int) -> None:
        """Add a free run, merged with the neighbours that it touches."""
        self.num_free += length
        index = bisect_left(self._starts, start)
        if index < len(self._starts) and start + length == self._starts[index]:
            length += self._lengths[index]
            del self._starts[index], self._lengths[index]
        if index and self._starts[index - 1] + self._lengths[index - 1] == start:
            self._lengths[index - 1] += length
            return
        self._starts.insert(index, start)
        self._lengths.insert(index, length)
