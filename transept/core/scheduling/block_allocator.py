"""BlockAllocator: a pool of equal blocks, allocated in runs of consecutive numbers.

BlockSpaceManager has one for the device and one for the host. A pool tracks block numbers and reference counts, and not
the blocks' contents.

A table of consecutive blocks can be read as one view of the cache, without a gather. Cross tables are long and have a
fixed length: they are taken from the low end of the pool. Self tables are short and grow block by block: they are taken
from the high end, so that they do not fragment the space for cross tables.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping


class BlockError(AssertionError):
    """A pool is inconsistent, or has fewer free blocks than its caller takes: a bug, never a user's mistake."""


class BlockAllocator:
    """Blocks 0 .. num_blocks - 1 with reference counts. All methods but `check` take time linear in the free runs.

    num_free: number of blocks without owners.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.reset()

    def reset(self) -> None:
        """Make every block free."""
        self.num_free = self.num_blocks
        self._ref_counts = [0] * self.num_blocks
        # The free runs, ascending. Two runs never touch, because `free` merges them.
        self._starts = [0] if self.num_blocks else []
        self._lengths = [self.num_blocks] if self.num_blocks else []

    def allocate_low(self, count: int) -> list[int]:
        """Take `count` blocks from the lowest free run that is long enough, else from the fewest runs; ascending.

        Raises BlockError if fewer are free.
        """
        for index, length in enumerate(self._lengths):
            if length >= count:
                return self._take(index, self._starts[index], count)
        return self._take_longest(count)

    def allocate_high(self, count: int) -> list[int]:
        """Take `count` blocks from the highest free run that is long enough, else from the fewest runs; ascending.

        Raises BlockError if fewer are free.
        """
        for index in range(len(self._lengths) - 1, -1, -1):
            length = self._lengths[index]
            if length >= count:
                return self._take(index, self._starts[index] + length - count, count)
        return self._take_longest(count)

    def allocate_after(self, block: int) -> int:
        """Take the block after an owned `block` if it is free, else one from the high end.

        Raises BlockError if no block is free.
        """
        index = bisect_left(self._starts, block + 1)
        if index < len(self._starts) and self._starts[index] == block + 1:
            return self._take(index, block + 1, 1)[0]
        return self.allocate_high(1)[0]

    def ref_count(self, block: int) -> int:
        """Return the number of tables that own the block."""
        return self._ref_counts[block]

    def share(self, blocks: Iterable[int]) -> None:
        """Add an owner to each block. Raises BlockError for a free block."""
        for block in blocks:
            if not self._ref_counts[block]:
                raise BlockError(f"block {block} is shared but has no owner")
            self._ref_counts[block] += 1

    def free(self, blocks: Iterable[int]) -> None:
        """Remove an owner of each block; blocks without owners become free. Raises BlockError for a free block."""
        start = length = 0  # the current run of consecutive freed blocks
        for block in blocks:
            if not self._ref_counts[block]:
                raise BlockError(f"block {block} is freed but has no owner")
            self._ref_counts[block] -= 1
            if self._ref_counts[block]:
                continue
            if block != start + length:
                self._add_run(start, length)
                start, length = block, 0
            length += 1
        self._add_run(start, length)

    def check(self, owners: Mapping[int, int]) -> None:
        """Raise BlockError unless all reference counts are right, and owned and free blocks make up the pool.

        owners: block -> number of tables with it; blocks without owners are absent.
        """
        counted = {block: count for block, count in enumerate(self._ref_counts) if count}
        if counted != dict(owners):
            raise BlockError(f"the reference counts are {counted}, but tables hold {dict(owners)}")
        free: list[int] = []
        end = -1  # end of the previous run; a gap must follow it
        for start, length in zip(self._starts, self._lengths, strict=True):
            if start <= end or length < 1:
                raise BlockError(f"free runs are out of order or unmerged: {self._starts} of lengths {self._lengths}")
            end = start + length
            free.extend(range(start, end))
        if len(free) != self.num_free or sorted([*free, *counted]) != list(range(self.num_blocks)):
            raise BlockError(f"{self.num_free} free blocks {free} and owned blocks {counted} do not make up the pool")

    def _take(self, index: int, start: int, count: int) -> list[int]:
        """Take blocks [start, start + count) from the free run `index`."""
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
        """Take `count` blocks from the longest runs first, which takes the fewest runs."""
        if count > self.num_free:
            raise BlockError(f"{count} blocks are taken but only {self.num_free} are free")
        blocks: list[int] = []
        while len(blocks) < count:
            index = max(range(len(self._lengths)), key=self._lengths.__getitem__)
            piece = min(count - len(blocks), self._lengths[index])
            blocks += self._take(index, self._starts[index], piece)
        return sorted(blocks)

    def _add_run(self, start: int, length: int) -> None:
        """Add a free run, merged with adjacent ones. Does nothing for length 0."""
        if not length:
            return
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
