"""EncoderCache: cross tables by content key, so that equal encoder inputs are encoded once.

BlockSpaceManager uses it for the device's tables. A table without users stays until its blocks are needed; the least
recently used table is freed first. In host memory, a page takes physical memory once it is written. There, unused
tables are limited to the largest number of blocks that were in use at once, so that new tables reuse written pages.
"""

from __future__ import annotations

from transept.core.scheduling.block_allocator import BlockAllocator
from transept.core.scheduling.step import BlockTable


class EncoderCache:
    """Tables by content key. Each user owns a table's blocks once; the cache owns an unused table.

    in_host_memory: see the module. num_unused_blocks: blocks that `make_room` could free.
    """

    def __init__(self, device: BlockAllocator, in_host_memory: bool = False) -> None:
        self._device = device
        self._in_host_memory = in_host_memory
        self._most_used_blocks = 0  # maximum number of blocks of tables with users
        self.reset()

    def reset(self) -> None:
        """Forget all tables. The caller resets the pool."""
        self.num_unused_blocks = 0
        self._tables: dict[bytes, BlockTable] = {}
        self._num_users: dict[bytes, int] = {}  # of tables in use
        self._unused: dict[bytes, None] = {}  # keys of the others, least recently used first

    def __contains__(self, key: bytes | None) -> bool:
        return key in self._tables

    @property
    def unused_tables(self) -> list[BlockTable]:
        """The tables without users."""
        return [self._tables[key] for key in self._unused]

    def num_blocks_to_revive(self, key: bytes | None) -> int:
        """Return the number of unused blocks that `share` would use again."""
        return len(self._tables[key]) if key in self._unused else 0

    def add(self, key: bytes, table: BlockTable) -> None:
        """Add a table, which has one user."""
        self._tables[key] = table
        self._use(key)

    def share(self, key: bytes) -> BlockTable:
        """Add a user to a cached table, and return the table."""
        table = self._tables[key]
        if key in self._unused:
            del self._unused[key]
            self.num_unused_blocks -= len(table)
            self._use(key)
        else:
            self._device.share(table)
            self._num_users[key] += 1
        return table

    def release(self, key: bytes | None, table: BlockTable) -> None:
        """Remove a user of a table. A cached table stays without users; a table that is not cached is freed."""
        if key is None or self._tables.get(key) is not table:
            self._device.free(table)
            return
        self._num_users[key] -= 1
        if self._num_users[key]:
            self._device.free(table)
            return
        del self._num_users[key]
        self._unused[key] = None
        self.num_unused_blocks += len(table)
        while self._in_host_memory and self.num_unused_blocks > self._most_used_blocks:
            self._free_unused(next(iter(self._unused)))

    def forget(self, key: bytes | None) -> None:
        """Remove a table from the cache, because its content may be wrong. Its current users keep it."""
        if key in self._num_users:
            del self._num_users[key], self._tables[key]
        elif key in self._unused:
            self._free_unused(key)

    def make_room(self, count: int) -> None:
        """Free unused tables, least recently used first, until `count` blocks are free or no table is unused."""
        while self._unused and self._device.num_free < count:
            self._free_unused(next(iter(self._unused)))

    def _use(self, key: bytes) -> None:
        self._num_users[key] = 1
        used = sum(len(self._tables[each]) for each in self._num_users)
        self._most_used_blocks = max(self._most_used_blocks, used)

    def _free_unused(self, key: bytes) -> None:
        del self._unused[key]
        table = self._tables.pop(key)
        self.num_unused_blocks -= len(table)
        self._device.free(table)
