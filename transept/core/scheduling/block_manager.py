"""BlockSpaceManager: assigns cache blocks to requests, for self- and for cross-attention, on device and host.

The scheduler calls it to run, grow, fork, preempt or free a request. It only tracks block numbers: methods that require
copies return pairs of block numbers, and the execution side copies the blocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from transept.core.scheduling.block_allocator import BlockAllocator, BlockError
from transept.core.scheduling.encoder_cache import EncoderCache
from transept.core.scheduling.sequence import Sequence
from transept.core.scheduling.sequence_group import SequenceGroup
from transept.core.scheduling.step import BlockTable, num_blocks_behind


class BlockSpaceManager:
    """One pool of blocks on the device and one on the host, each for self and cross tables.

    Decoder sequences of one group share self blocks, and groups with equal encoder inputs share a cross table. All
    blocks of a group are on one side.

    window: see ModelShape. As a sequence grows, its blocks outside the window are freed.
    block_tables: blocks of self-attention in token order, by decoder sequence id, without those outside the window.
    cross_block_tables: blocks of the encoder's output in token order, by request id. The tables are live, and only this
    class changes them.
    num_encoder_runs, num_encoder_hits: prefills whose encoder had to run, and those whose input was in the cache.
    """

    def __init__(
        self,
        block_size: int,
        num_device_blocks: int,
        num_host_blocks: int,
        window: int | None = None,
        *,
        in_host_memory: bool = False,
    ) -> None:
        self.block_size = block_size  # slots (tokens) of a block
        self.window = window
        self.num_device_blocks = num_device_blocks
        self.num_host_blocks = num_host_blocks
        self._device = BlockAllocator(num_device_blocks)
        self._host = BlockAllocator(num_host_blocks)
        self._encoded = EncoderCache(self._device, in_host_memory)
        self.num_encoder_runs = 0
        self.num_encoder_hits = 0
        self.block_tables: dict[int, BlockTable] = {}
        self.cross_block_tables: dict[str, BlockTable] = {}
        self._pool_of_seq: dict[int, BlockAllocator] = {}  # where a table's blocks are; same keys as block_tables
        self._num_outside: dict[int, int] = {}  # freed blocks before a table's first, by sequence; 0 without an entry
        self._pool_of_cross: dict[str, BlockAllocator] = {}  # same keys as cross_block_tables

    @property
    def num_free_device_blocks(self) -> int:
        """Number of device blocks without users, including encoder outputs of earlier requests."""
        return self._device.num_free + self._encoded.num_unused_blocks

    @property
    def num_free_host_blocks(self) -> int:
        """Number of host blocks without owners."""
        return self._host.num_free

    def num_blocks_for(self, num_tokens: int) -> int:
        """Return the number of blocks that `num_tokens` tokens take."""
        return -(-num_tokens // self.block_size)

    def is_encoded(self, group: SequenceGroup) -> bool:
        """True if the device has the output for the group's encoder input, so that its encoder need not run."""
        return group.content_key in self._encoded

    def forget_encoded(self, group: SequenceGroup) -> None:
        """Stop sharing the group's cross table, because the step that writes it failed."""
        self._encoded.forget(group.content_key)

    def can_allocate(self, group: SequenceGroup, reserve: int = 0) -> bool:
        """True if `allocate` would work and leave `reserve` device blocks free."""
        own = sum(self.num_blocks_for(seq.num_tokens) for seq in group.unfinished_seqs)
        return own + self._num_cross_blocks_to_take(group) + reserve <= self.num_free_device_blocks

    def allocate(self, group: SequenceGroup) -> None:
        """Allocate a group's cross table, or share it if its input is encoded, and its unfinished sequences' tables.

        A group that is recomputed may have several sequences: they no longer share blocks. Raises BlockError if the
        group has tables already, or if there are too few free blocks.
        """
        seqs = group.unfinished_seqs
        if group.request_id in self.cross_block_tables or any(seq.seq_id in self.block_tables for seq in seqs):
            raise BlockError(f"request {group.request_id!r} is allocated twice")
        if not self.can_allocate(group):
            raise BlockError(f"request {group.request_id!r} does not fit into {self.num_free_device_blocks} blocks")
        if self.is_encoded(group):
            self.num_encoder_hits += 1
        else:
            self.num_encoder_runs += 1
        self._take_cross(group)
        for seq in seqs:
            self._own(seq, self._allocate_high(self.num_blocks_for(seq.num_tokens)), self._device)

    def can_append_slots(self, group: SequenceGroup) -> bool:
        """True if `append_slots` would work for all unfinished sequences of the group."""
        seqs = group.unfinished_seqs
        free = self.num_free_device_blocks
        return len(seqs) <= free or self._num_blocks_to_append(seqs) <= free

    def append_slots(self, seq: Sequence) -> tuple[int, int] | None:
        """Allocate the slot of the sequence's last token, which the next step writes, in an unshared block.

        Frees the blocks outside the window. Returns (source, destination) if a block shared with another sequence must
        be copied, else None. Raises BlockError if the group is not on the device or no block is free.
        """
        #  slots of one sequence     0 ................... num_tokens - 2, num_tokens - 1
        #                            |----- in the cache, maybe shared ---|- this step -|
        device = self._device
        if self._pool_of_seq[seq.seq_id] is not device:
            raise BlockError(f"sequence {seq.seq_id} is to grow while it is swapped out")
        table = self.block_tables[seq.seq_id]
        index = self._index_of_last(seq)
        if self.window is not None:
            index -= self._free_outside_window(seq)
        if index == len(table):
            self._encoded.make_room(1)
            table.append(device.allocate_after(table[-1]) if table else device.allocate_high(1)[0])
            return None
        shared = table[index]  # IndexError: more than one token was appended since the last step
        if device.ref_count(shared) == 1:
            return None
        table[index] = self._allocate_high(1)[0]
        device.free((shared,))
        return shared, table[index]

    def append_draft_slots(self, seq: Sequence, most: int, reserve: int) -> int:
        """Allocate slots after the sequence's last token, up to `most`. Returns their number.

        Leaves `reserve` device blocks free. Called after `append_slots`; `drop_draft_slots` undoes it.
        """
        table = self.block_tables[seq.seq_id]
        num_slots = (len(table) + self._num_outside.get(seq.seq_id, 0)) * self.block_size - seq.num_tokens
        while num_slots < most and self.num_free_device_blocks > reserve:
            self._encoded.make_room(1)
            table.append(self._device.allocate_after(table[-1]))
            num_slots += self.block_size
        return min(num_slots, most)

    def drop_draft_slots(self, seq: Sequence) -> None:
        """Free the blocks after the cached tokens, which are all tokens but the last one."""
        table = self.block_tables[seq.seq_id]
        num_kept = self.num_blocks_for(seq.num_tokens - 1) - self._num_outside.get(seq.seq_id, 0)
        unused = table[num_kept:]
        del table[num_kept:]
        self._device.free(unused)

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """Share the parent's blocks with a new sequence of its group, copy-on-write."""
        table = self.block_tables[parent.seq_id]
        pool = self._pool_of_seq[parent.seq_id]
        if child.seq_id in self.block_tables:
            raise BlockError(f"sequence {child.seq_id} is forked from {parent.seq_id} but has a table")
        pool.share(table)
        self._own(child, table.copy(), pool)
        if parent.seq_id in self._num_outside:
            self._num_outside[child.seq_id] = self._num_outside[parent.seq_id]

    def can_swap_out(self, group: SequenceGroup) -> bool:
        """True if the host has room for all blocks of the group."""
        num_blocks = self._num_self_blocks(group) + len(self.cross_block_tables[group.request_id])
        return num_blocks <= self._host.num_free

    def swap_out(self, group: SequenceGroup) -> list[tuple[int, int]]:
        """Move the group's tables to the host. Returns (device block, host block) pairs to copy."""
        if self._pool_of_cross[group.request_id] is not self._device or not self.can_swap_out(group):
            raise BlockError(f"request {group.request_id!r} cannot be swapped out")
        cross_table = self.cross_block_tables[group.request_id]
        host_table = self._host.allocate_low(len(cross_table))
        self._encoded.release(group.content_key, cross_table)
        self._own_cross(group, host_table, self._host)
        pairs = list(zip(cross_table, host_table, strict=True))
        return pairs + self._move_seqs(group, self._device, self._host, self._host.allocate_high)

    def can_swap_in(self, group: SequenceGroup, reserve: int = 0) -> bool:
        """True if `swap_in` would work, and leave blocks for the group's next step and `reserve` further blocks."""
        needed = self._num_self_blocks(group) + self._num_blocks_to_append(group.unfinished_seqs)
        needed += self._num_cross_blocks_to_take(group)
        return needed + reserve <= self.num_free_device_blocks

    def swap_in(self, group: SequenceGroup) -> list[tuple[int, int]]:
        """Move the group's tables to the device. Returns (host block, device block) pairs to copy.

        The cross table needs no copies if the device already has that encoder output.
        """
        needed = self._num_self_blocks(group) + self._num_cross_blocks_to_take(group)
        if self._pool_of_cross[group.request_id] is not self._host or needed > self.num_free_device_blocks:
            raise BlockError(f"request {group.request_id!r} cannot be swapped in")
        host_table = self.cross_block_tables[group.request_id]
        encoded = self.is_encoded(group)
        device_table = self._take_cross(group)
        pairs = [] if encoded else list(zip(host_table, device_table, strict=True))
        self._host.free(host_table)
        return pairs + self._move_seqs(group, self._host, self._device, self._allocate_high)

    def free(self, seq: Sequence) -> None:
        """Free a sequence's self table, on either side; do nothing if it has none."""
        table = self.block_tables.pop(seq.seq_id, None)
        if table is not None:
            self._pool_of_seq.pop(seq.seq_id).free(table)
            self._num_outside.pop(seq.seq_id, None)

    def free_cross(self, group: SequenceGroup) -> None:
        """Free a group's cross table, on either side; do nothing if it has none."""
        table = self.cross_block_tables.pop(group.request_id, None)
        if table is None:
            return
        if self._pool_of_cross.pop(group.request_id) is self._device:
            self._encoded.release(group.content_key, table)
        else:
            self._host.free(table)

    def forget_unused(self) -> None:
        """Free encoder outputs without users, so that equal inputs are encoded again."""
        self._encoded.make_room(self.num_device_blocks)

    def reset(self) -> None:
        """Drop all tables and free all blocks on both sides."""
        self._device.reset()
        self._host.reset()
        self._encoded.reset()
        for each in (self.block_tables, self.cross_block_tables, self._pool_of_seq, self._pool_of_cross):
            each.clear()
        self._num_outside.clear()

    def check_integrity(self) -> None:
        """Raise BlockError unless reference counts match the tables, and free and owned blocks make up the pools."""
        by_request = self.cross_block_tables.keys() == self._pool_of_cross.keys()
        if self.block_tables.keys() != self._pool_of_seq.keys() or not by_request:
            raise BlockError("the tables and the pools of their blocks have different keys")
        for pool in (self._device, self._host):
            self_tables = [table for key, table in self.block_tables.items() if self._pool_of_seq[key] is pool]
            cross_tables = [table for key, table in self.cross_block_tables.items() if self._pool_of_cross[key] is pool]
            unused_tables = self._encoded.unused_tables if pool is self._device else []
            pool.check(Counter(block for table in self_tables + cross_tables + unused_tables for block in table))
            distinct = {tuple(table) for table in cross_tables + unused_tables}
            own = {block for table in self_tables for block in table}
            if len(own) + sum(map(len, distinct)) != len(own.union(*distinct)):
                raise BlockError("a cross table shares a block with a different table")

    def _own(self, seq: Sequence, table: BlockTable, pool: BlockAllocator) -> None:
        self._pool_of_seq[seq.seq_id] = pool  # before the table, because `free` looks it up for every table
        self.block_tables[seq.seq_id] = table

    def _own_cross(self, group: SequenceGroup, table: BlockTable, pool: BlockAllocator) -> None:
        self._pool_of_cross[group.request_id] = pool
        self.cross_block_tables[group.request_id] = table

    def _index_of_last(self, seq: Sequence) -> int:
        """Return the index of the block of the sequence's last token in its table."""
        return (seq.num_tokens - 1) // self.block_size - self._num_outside.get(seq.seq_id, 0)

    def _free_outside_window(self, seq: Sequence) -> int:
        """Free the blocks to which the sequence's last token does not attend. Returns their number."""
        outside = num_blocks_behind(seq.num_tokens, self.window, self.block_size)
        count = outside - self._num_outside.get(seq.seq_id, 0)
        if count:
            table = self.block_tables[seq.seq_id]
            unseen = table[:count]
            del table[:count]  # first, so that after an interruption no block is freed twice
            self._num_outside[seq.seq_id] = outside
            self._pool_of_seq[seq.seq_id].free(unseen)
        return count

    def _num_blocks_to_append(self, seqs: Iterable[Sequence]) -> int:
        """Return the number of blocks that `append_slots` takes for all of these sequences of one group.

        Exact, so that a group alone in a pool of exactly its size can continue. Each sequence that writes into a shared
        block copies it, except the last owner.
        """
        needed = 0
        writers: Counter[int] = Counter()  # block -> number of sequences that write into it
        ref_counts: dict[int, int] = {}
        for seq in seqs:
            table = self.block_tables[seq.seq_id]
            index = self._index_of_last(seq)
            if index == len(table):
                needed += 1
                continue
            block = table[index]
            writers[block] += 1
            ref_counts[block] = self._pool_of_seq[seq.seq_id].ref_count(block)
        return needed + sum(min(count, ref_counts[block] - 1) for block, count in writers.items())

    def _num_self_blocks(self, group: SequenceGroup) -> int:
        """Return the number of distinct blocks of the group's decoder sequences."""
        return len({block for seq in group.seqs for block in self.block_tables.get(seq.seq_id, ())})

    def _num_cross_blocks_to_take(self, group: SequenceGroup) -> int:
        """Return the number of unused device blocks that the group's cross table takes."""
        if self.is_encoded(group):
            return self._encoded.num_blocks_to_revive(group.content_key)
        return self.num_blocks_for(group.num_cross_tokens)

    def _take_cross(self, group: SequenceGroup) -> BlockTable:
        """Assign the group the device's table for its encoder input, or a new one that other groups may share."""
        key = group.content_key
        if key is not None and key in self._encoded:
            table = self._encoded.share(key)
        else:
            count = self.num_blocks_for(group.num_cross_tokens)
            self._encoded.make_room(count)
            table = self._device.allocate_low(count)
            if key is not None:
                self._encoded.add(key, table)
        self._own_cross(group, table, self._device)
        return table

    def _allocate_high(self, count: int) -> list[int]:
        self._encoded.make_room(count)
        return self._device.allocate_high(count)

    def _move_seqs(
        self, group: SequenceGroup, source: BlockAllocator, target: BlockAllocator, allocate: Callable[[int], list[int]]
    ) -> list[tuple[int, int]]:
        """Rebuild the group's self tables in the target pool. Returns (source block, target block) pairs.

        Each block moves once and keeps its number of owners.
        """
        renamed: dict[int, int] = {}
        for seq in group.seqs:
            table = self.block_tables.get(seq.seq_id)
            if table is None:
                continue
            target.share(renamed[block] for block in table if block in renamed)  # moved with another sequence
            others = [block for block in table if block not in renamed]
            renamed.update(zip(others, allocate(len(others)), strict=True))
            source.free(table)
            self._own(seq, [renamed[block] for block in table], target)
        return list(renamed.items())
