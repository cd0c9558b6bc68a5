"""EncoderCache: cross tables by what was encoded into them, so that equal encoder inputs are encoded once.

Used by BlockSpaceManager alone, for the device's tables. A table that no request uses any more stays, until its blocks
are needed: then the one unused for longest goes first. In a host's memory, whose pages are taken as they are written,
no more of them stay than have been in use at once: what is written next finds pages that were written before.
"""

from __future__ import annotations

from transept.core.scheduling.block_allocator import BlockAllocator
from transept.core.scheduling.step import BlockTable


class EncoderCache:
    """Tables by content key. Each user owns a table's blocks once; of an unused table the cache is the one owner.

    in_host_memory: see above. num_unused_blocks: blocks that `make_room` could free.
    """

    def __init__(self, device: BlockAllocator, in_host_memory: bool = False) -> None:
        self._device = device
        self._in_host_memory = in_host_memory
        self._most_used_blocks = 0  # at once, of tables with users
        self.reset()

    def reset(self) -> None:
        """Forget everything; the pool is reset by its owner."""
        self.num_unused_blocks = 0
        self._tables: dict[bytes, BlockTable] = {}
        self._num_users: dict[bytes, int] = {}  # of tables in use
        self._unused: dict[bytes, None] = {}  # keys of the others, the one unused for longest first

    def __contains__(self, key: bytes | None) -> bool:
        return key in self._tables

    @property
    def unused_tables(self) -> list[BlockTable]:
        """The tables that nobody uses."""
        return [self._tables[key] for key in self._unused]

    def num_blocks_to_revive(self, key: bytes | None) -> int:
        """Unused blocks that `share` would put to use again."""
        return len(self._tables[key]) if key in self._unused else 0

    def add(self, key: bytes, table: BlockTable) -> None:
        """Make a table with one user known."""
        self._tables[key] = table
        self._use(key)

    def share(self, key: bytes) -> BlockTable:
        """One user more of a known table."""
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
        """One user less. A known table without users stays; one that is not known under this key is freed."""
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
        """Let nobody share a table any more: what it holds may be wrong. Its users, if it has any, have it still."""
        if key in self._num_users:
            del self._num_users[key], self._tables[key]
        elif key in self._unused:
            self._free_unused(key)

    def make_room(self, count: int) -> None:
        """Free unused tables, oldest first, until `count` blocks are free or none is unused."""
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
