"""BlockSpaceManager: which cache blocks each request owns, for self- and for cross-attention, on device and host.

Asked by the scheduler before and when it runs, grows, forks, preempts or frees a request. Keeps the books only: the
copies that follow from a decision are returned as pairs of block numbers for the execution side to carry out.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable

from transept.core.block_allocator import BlockAllocator, BlockError
from transept.core.sequence import BlockTable, Sequence, SequenceGroup


class AllocStatus(enum.Enum):
    """Whether a group's tables fit: now, once others have freed theirs, or never."""

    OK = "ok"
    LATER = "later"
    NEVER = "never"


class BlockSpaceManager:
    """One pool of blocks on the device and one on the host, each serving self and cross tables.

    Blocks are shared only between the decoder sequences of one group, and a group lives wholly on one side.

    block_tables: by decoder sequence id, whose slots hold the sequence's tokens but for one that is still to be
        computed. cross_block_tables: by request id, whose slots are the encoder's output. All are live and for reading
        only; a table changes in calls to this class alone.
    """

    def __init__(self, block_size: int, num_device_blocks: int, num_host_blocks: int) -> None:
        self.block_size = block_size  # slots (tokens) a block
        self.num_device_blocks = num_device_blocks
        self.num_host_blocks = num_host_blocks
        self._device = BlockAllocator(num_device_blocks)
        self._host = BlockAllocator(num_host_blocks)
        self.block_tables: dict[int, BlockTable] = {}
        self.cross_block_tables: dict[str, BlockTable] = {}
        self._pool_of_seq: dict[int, BlockAllocator] = {}  # where a table's blocks are; same keys as block_tables
        self._pool_of_cross: dict[str, BlockAllocator] = {}  # same keys as cross_block_tables

    @property
    def num_free_device_blocks(self) -> int:
        """Device blocks that nobody owns."""
        return self._device.num_free

    @property
    def num_free_host_blocks(self) -> int:
        """Host blocks that nobody owns."""
        return self._host.num_free

    def num_blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold so many tokens."""
        return -(-num_tokens // self.block_size)

    def get_block_table(self, seq: Sequence) -> BlockTable:
        """The sequence's self-attention blocks in token order; live, for reading only."""
        return self.block_tables[seq.seq_id]

    def get_cross_block_table(self, group: SequenceGroup) -> BlockTable:
        """The group's cross-attention blocks in token order; live, for reading only."""
        return self.cross_block_tables[group.request_id]

    def can_allocate(self, group: SequenceGroup, reserve: int = 0) -> AllocStatus:
        """Whether `allocate` would work and leave `reserve` device blocks free."""
        needed = self.num_blocks_for(group.encoder_seq.num_tokens)
        needed += sum(self.num_blocks_for(seq.num_tokens) for seq in group.unfinished_seqs)
        if needed > self.num_device_blocks:
            return AllocStatus.NEVER
        return AllocStatus.OK if needed + reserve <= self._device.num_free else AllocStatus.LATER

    def allocate(self, group: SequenceGroup) -> None:
        """Give the group a cross table and each unfinished decoder sequence a table of its own, for all its tokens.

        A group that is recomputed may have several sequences: they no longer share blocks. Raises BlockError when the
        group has tables already or the blocks are not there.
        """
        seqs = group.unfinished_seqs
        if group.request_id in self.cross_block_tables or any(seq.seq_id in self.block_tables for seq in seqs):
            raise BlockError(f"request {group.request_id!r} is allocated twice")
        if self.can_allocate(group) is not AllocStatus.OK:
            raise BlockError(f"request {group.request_id!r} does not fit into {self._device.num_free} free blocks")
        cross_table = self._device.allocate_low(self.num_blocks_for(group.encoder_seq.num_tokens))
        self._own_cross(group, cross_table, self._device)
        for seq in seqs:
            self._own(seq, self._device.allocate_high(self.num_blocks_for(seq.num_tokens)), self._device)

    def can_append_slots(self, group: SequenceGroup) -> bool:
        """Whether `append_slots` would work for every unfinished sequence of the group, one after the other."""
        seqs = group.unfinished_seqs
        free = self._device.num_free
        return len(seqs) <= free or self._num_blocks_to_append(seqs) <= free

    def append_slots(self, seq: Sequence) -> tuple[int, int] | None:
        """Make the slot for the sequence's last token, which the coming step writes: it exists and is its own.

        Returns (source, destination) when a block shared with another sequence is to be copied, else None. Raises
        BlockError when the group is not on the device or no block is free.
        """
        #  slots of one sequence     0 ................... num_tokens - 2, num_tokens - 1
        #                            |----- in the cache, maybe shared ---|- this step -|
        device = self._device
        if self._pool_of_seq[seq.seq_id] is not device:
            raise BlockError(f"sequence {seq.seq_id} is to grow while it is swapped out")
        table = self.block_tables[seq.seq_id]
        index = (seq.num_tokens - 1) // self.block_size
        if index == len(table):
            table.append(device.allocate_after(table[-1]) if table else device.allocate_high(1)[0])
            return None
        shared = table[index]  # IndexError: more than one token was appended since the last step
        if device.ref_count(shared) == 1:
            return None
        table[index] = device.allocate_high(1)[0]
        device.free((shared,))
        return shared, table[index]

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """Let a new sequence of the same group share the parent's blocks, to be copied when either writes."""
        table = self.block_tables[parent.seq_id]
        pool = self._pool_of_seq[parent.seq_id]
        if child.seq_id in self.block_tables:
            raise BlockError(f"sequence {child.seq_id} is forked from {parent.seq_id} but has a table")
        pool.share(table)
        self._own(child, table.copy(), pool)

    def can_swap_out(self, group: SequenceGroup) -> bool:
        """Whether the host has room for all blocks of the group."""
        return self._num_owned_blocks(group) <= self._host.num_free

    def swap_out(self, group: SequenceGroup) -> list[tuple[int, int]]:
        """Move the group's tables to the host. Returns (device block, host block) pairs to copy."""
        return self._move(group, self._device, self._host)

    def can_swap_in(self, group: SequenceGroup, reserve: int = 0) -> bool:
        """Whether the group could move to the device, take the slots of its next step and leave `reserve` blocks."""
        needed = self._num_owned_blocks(group) + self._num_blocks_to_append(group.unfinished_seqs)
        return needed + reserve <= self._device.num_free

    def swap_in(self, group: SequenceGroup) -> list[tuple[int, int]]:
        """Move the group's tables to the device. Returns (host block, device block) pairs to copy."""
        return self._move(group, self._host, self._device)

    def free(self, seq: Sequence) -> None:
        """Give back the sequence's self table, wherever it lives; nothing if it has none."""
        table = self.block_tables.pop(seq.seq_id, None)
        if table is not None:
            self._pool_of_seq.pop(seq.seq_id).free(table)

    def free_cross(self, group: SequenceGroup) -> None:
        """Give back the group's cross table, wherever it lives; nothing if it has none."""
        table = self.cross_block_tables.pop(group.request_id, None)
        if table is not None:
            self._pool_of_cross.pop(group.request_id).free(table)

    def reset(self) -> None:
        """Drop every table: all blocks are free on both sides."""
        self._device.reset()
        self._host.reset()
        for tables in (self.block_tables, self.cross_block_tables, self._pool_of_seq, self._pool_of_cross):
            tables.clear()

    def check_integrity(self) -> None:
        """Raise BlockError unless owners are as many as counted, and free and owned blocks make up the pools."""
        if self.block_tables.keys() != self._pool_of_seq.keys():
            raise BlockError("self tables and their places differ")
        if self.cross_block_tables.keys() != self._pool_of_cross.keys():
            raise BlockError("cross tables and their places differ")
        for pool in (self._device, self._host):
            self_tables = [table for key, table in self.block_tables.items() if self._pool_of_seq[key] is pool]
            cross_tables = [table for key, table in self.cross_block_tables.items() if self._pool_of_cross[key] is pool]
            owners = Counter(block for table in self_tables + cross_tables for block in table)
            pool.check(owners)
            if any(owners[block] > 1 for table in cross_tables for block in table):
                raise BlockError("a cross table shares a block")

    def _own(self, seq: Sequence, table: BlockTable, pool: BlockAllocator) -> None:
        self.block_tables[seq.seq_id] = table
        self._pool_of_seq[seq.seq_id] = pool

    def _own_cross(self, group: SequenceGroup, table: BlockTable, pool: BlockAllocator) -> None:
        self.cross_block_tables[group.request_id] = table
        self._pool_of_cross[group.request_id] = pool

    def _num_blocks_to_append(self, seqs: Iterable[Sequence]) -> int:
        """Blocks that `append_slots` takes for all of these sequences of one group.

        Exact, because a group alone in a pool of just its size must go on: of the sequences that write into one shared
        block each copies it but the last owner, who keeps it.
        """
        needed = 0
        writers: Counter[int] = Counter()  # shared block -> sequences that write into it
        ref_counts: dict[int, int] = {}
        for seq in seqs:
            table = self.block_tables[seq.seq_id]
            index = (seq.num_tokens - 1) // self.block_size
            if index == len(table):
                needed += 1
                continue
            block = table[index]
            writers[block] += 1
            ref_counts[block] = self._pool_of_seq[seq.seq_id].ref_count(block)
        return needed + sum(min(count, ref_counts[block] - 1) for block, count in writers.items())

    def _num_owned_blocks(self, group: SequenceGroup) -> int:
        """Distinct blocks of the group."""
        self_blocks = {block for seq in group.seqs for block in self.block_tables.get(seq.seq_id, ())}
        return len(self_blocks) + len(self.cross_block_tables[group.request_id])

    def _move(self, group: SequenceGroup, source: BlockAllocator, target: BlockAllocator) -> list[tuple[int, int]]:
        """Rebuild the group's tables in the target pool.

        Each block moves once and has as many owners after as before; the tables are the same up to the one-to-one
        renaming of blocks that is returned.
        """
        if self._pool_of_cross[group.request_id] is not source:
            raise BlockError(f"request {group.request_id!r} is not where it is to be moved from")
        if self._num_owned_blocks(group) > target.num_free:
            raise BlockError(f"request {group.request_id!r} does not fit into {target.num_free} free blocks")
        cross_table = self.cross_block_tables[group.request_id]
        renamed = dict(zip(cross_table, target.allocate_low(len(cross_table)), strict=True))
        source.free(cross_table)
        self._own_cross(group, list(renamed.values()), target)
        for seq in group.seqs:
            table = self.block_tables.get(seq.seq_id)
            if table is None:
                continue
            target.share(renamed[block] for block in table if block in renamed)  # moved with another sequence
            alone = [block for block in table if block not in renamed]
            renamed.update(zip(alone, target.allocate_high(len(alone)), strict=True))
            source.free(table)
            self._own(seq, [renamed[block] for block in table], target)
        return list(renamed.items())
