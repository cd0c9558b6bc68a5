"""BlockSpaceManager: which cache blocks each request owns, for self- and for cross-attention, on device and host.

Asked by the scheduler before and when it runs, grows, forks, preempts or frees a request. Keeps the books only: the
copies that follow from a decision are returned as pairs of block numbers for the execution side to carry out.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable

from transept.core.scheduling.block_allocator import BlockAllocator, BlockError
from transept.core.scheduling.encoder_cache import EncoderCache
from transept.core.scheduling.sequence import Sequence
from transept.core.scheduling.sequence_group import SequenceGroup
from transept.core.scheduling.step import BlockTable, num_blocks_behind


class AllocStatus(enum.Enum):
    """Whether a group's tables fit: now, once others have freed theirs, or never."""

    OK = "ok"
    LATER = "later"
    NEVER = "never"


class BlockSpaceManager:
    """One pool of blocks on the device and one on the host, each serving self and cross tables.

    Self blocks are shared between the decoder sequences of one group, cross tables between groups with equal encoder
    inputs. A group lives wholly on one side.

    window: tokens that every decoder layer's self-attention sees at most: a sequence that grows gives the blocks behind
        them back. None: all tokens.
    block_tables: by decoder sequence id, whose slots hold the sequence's tokens, those behind the window and one that
        is still to be computed aside. cross_block_tables: by request id, whose slots are the encoder's output. All are
        live and for reading only; a table changes in calls to this class alone.
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
        self.block_size = block_size  # slots (tokens) a block
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
        self._num_given_back: dict[int, int] = {}  # blocks that stood before a table's first; 0 where it has no entry
        self._pool_of_cross: dict[str, BlockAllocator] = {}  # same keys as cross_block_tables

    @property
    def num_free_device_blocks(self) -> int:
        """Device blocks that nobody uses: free, or with the encoder output of requests that are gone."""
        return self._device.num_free + self._encoded.num_unused_blocks

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

    def is_encoded(self, group: SequenceGroup) -> bool:
        """Whether the device holds the output for the group's encoder input, so that its encoder need not run."""
        return group.content_key in self._encoded

    def forget_encoded(self, group: SequenceGroup) -> None:
        """Share the group's cross table with nobody else: the step that was to write it failed."""
        self._encoded.forget(group.content_key)

    def can_allocate(self, group: SequenceGroup, reserve: int = 0) -> AllocStatus:
        """Whether `allocate` would work and leave `reserve` device blocks free."""
        own = sum(self.num_blocks_for(seq.num_tokens) for seq in group.unfinished_seqs)
        if own + self.num_blocks_for(group.encoder_seq.num_tokens) > self.num_device_blocks:
            return AllocStatus.NEVER
        needed = own + self._num_cross_blocks_to_take(group) + reserve
        return AllocStatus.OK if needed <= self.num_free_device_blocks else AllocStatus.LATER

    def allocate(self, group: SequenceGroup) -> None:
        """Give the group a cross table, a shared one if its input is encoded, and each unfinished decoder sequence one.

        A group that is recomputed may have several sequences: they no longer share blocks. Raises BlockError when the
        group has tables already or the blocks are not there.
        """
        seqs = group.unfinished_seqs
        if group.request_id in self.cross_block_tables or any(seq.seq_id in self.block_tables for seq in seqs):
            raise BlockError(f"request {group.request_id!r} is allocated twice")
        if self.can_allocate(group) is not AllocStatus.OK:
            raise BlockError(f"request {group.request_id!r} does not fit into {self.num_free_device_blocks} blocks")
        if self.is_encoded(group):
            self.num_encoder_hits += 1
        else:
            self.num_encoder_runs += 1
        self._take_cross(group)
        for seq in seqs:
            self._own(seq, self._allocate_high(self.num_blocks_for(seq.num_tokens)), self._device)

    def can_append_slots(self, group: SequenceGroup) -> bool:
        """Whether `append_slots` would work for every unfinished sequence of the group, one after the other."""
        seqs = group.unfinished_seqs
        free = self.num_free_device_blocks
        return len(seqs) <= free or self._num_blocks_to_append(seqs) <= free

    def append_slots(self, seq: Sequence) -> tuple[int, int] | None:
        """Make the slot for the sequence's last token, which the coming step writes: it exists and is its own.

        Blocks behind the window are given back. Returns (source, destination) when a block shared with another sequence
        is to be copied, else None. Raises BlockError when the group is not on the device or no block is free.
        """
        #  slots of one sequence     0 ................... num_tokens - 2, num_tokens - 1
        #                            |----- in the cache, maybe shared ---|- this step -|
        device = self._device
        if self._pool_of_seq[seq.seq_id] is not device:
            raise BlockError(f"sequence {seq.seq_id} is to grow while it is swapped out")
        table = self.block_tables[seq.seq_id]
        index = self._index_of_last(seq)
        if self.window is not None:
            index -= self._give_back_behind_window(seq)
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

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """Let a new sequence of the same group share the parent's blocks, to be copied when either writes."""
        table = self.block_tables[parent.seq_id]
        pool = self._pool_of_seq[parent.seq_id]
        if child.seq_id in self.block_tables:
            raise BlockError(f"sequence {child.seq_id} is forked from {parent.seq_id} but has a table")
        pool.share(table)
        self._own(child, table.copy(), pool)
        if parent.seq_id in self._num_given_back:
            self._num_given_back[child.seq_id] = self._num_given_back[parent.seq_id]

    def can_swap_out(self, group: SequenceGroup) -> bool:
        """Whether the host has room for all blocks of the group."""
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
        """Whether the group could move to the device, take the slots of its next step and leave `reserve` blocks."""
        needed = self._num_self_blocks(group) + self._num_blocks_to_append(group.unfinished_seqs)
        needed += self._num_cross_blocks_to_take(group)
        return needed + reserve <= self.num_free_device_blocks

    def swap_in(self, group: SequenceGroup) -> list[tuple[int, int]]:
        """Move the group's tables to the device. Returns (host block, device block) pairs to copy.

        None are returned for the cross table where the device holds that encoder output already.
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
        """Give back the sequence's self table, wherever it lives; nothing if it has none."""
        table = self.block_tables.pop(seq.seq_id, None)
        if table is not None:
            self._pool_of_seq.pop(seq.seq_id).free(table)
            self._num_given_back.pop(seq.seq_id, None)

    def free_cross(self, group: SequenceGroup) -> None:
        """Give back the group's cross table, wherever it lives; nothing if it has none."""
        table = self.cross_block_tables.pop(group.request_id, None)
        if table is None:
            return
        if self._pool_of_cross.pop(group.request_id) is self._device:
            self._encoded.release(group.content_key, table)
        else:
            self._host.free(table)

    def forget_unused(self) -> None:
        """Free the encoder outputs that no request uses any more, so that equal inputs are encoded again."""
        self._encoded.make_room(self.num_device_blocks)

    def reset(self) -> None:
        """Drop every table: all blocks are free on both sides."""
        self._device.reset()
        self._host.reset()
        self._encoded.reset()
        tables = (self.block_tables, self.cross_block_tables, self._pool_of_seq, self._pool_of_cross)
        for each in (*tables, self._num_given_back):
            each.clear()

    def check_integrity(self) -> None:
        """Raise BlockError unless owners are as many as counted, and free and owned blocks make up the pools."""
        if self.block_tables.keys() != self._pool_of_seq.keys():
            raise BlockError("self tables and their places differ")
        if self.cross_block_tables.keys() != self._pool_of_cross.keys():
            raise BlockError("cross tables and their places differ")
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
        self._pool_of_seq[seq.seq_id] = pool  # first: `free` asks for it wherever there is a table
        self.block_tables[seq.seq_id] = table

    def _own_cross(self, group: SequenceGroup, table: BlockTable, pool: BlockAllocator) -> None:
        self._pool_of_cross[group.request_id] = pool
        self.cross_block_tables[group.request_id] = table

    def _index_of_last(self, seq: Sequence) -> int:
        """Where in the sequence's table the block of its last token stands, or will."""
        return (seq.num_tokens - 1) // self.block_size - self._num_given_back.get(seq.seq_id, 0)

    def _give_back_behind_window(self, seq: Sequence) -> int:
        """Free the blocks that the sequence's last token does not see. Returns how many these were."""
        behind = num_blocks_behind(seq.num_tokens, self.window, self.block_size)
        count = behind - self._num_given_back.get(seq.seq_id, 0)
        if count:
            table = self.block_tables[seq.seq_id]
            unseen = table[:count]
            del table[:count]  # first: what an interruption leaves in a table is freed with it
            self._num_given_back[seq.seq_id] = behind
            self._pool_of_seq[seq.seq_id].free(unseen)
        return count

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
            index = self._index_of_last(seq)
            if index == len(table):
                needed += 1
                continue
            block = table[index]
            writers[block] += 1
            ref_counts[block] = self._pool_of_seq[seq.seq_id].ref_count(block)
        return needed + sum(min(count, ref_counts[block] - 1) for block, count in writers.items())

    def _num_self_blocks(self, group: SequenceGroup) -> int:
        """Distinct blocks of the group's decoder sequences."""
        return len({block for seq in group.seqs for block in self.block_tables.get(seq.seq_id, ())})

    def _num_cross_blocks_to_take(self, group: SequenceGroup) -> int:
        """Blocks, of those that nobody uses, that the group's cross table takes on the device."""
        if self.is_encoded(group):
            return self._encoded.num_blocks_to_revive(group.content_key)
        return self.num_blocks_for(group.encoder_seq.num_tokens)

    def _take_cross(self, group: SequenceGroup) -> BlockTable:
        """Give the group the device's table for its encoder input, or a new one that others may share from now on."""
        key = group.content_key
        if key is not None and key in self._encoded:
            table = self._encoded.share(key)
        else:
            count = self.num_blocks_for(group.encoder_seq.num_tokens)
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
        self,
        group: SequenceGroup,
        source: BlockAllocator,
        target: BlockAllocator,
        allocate: Callable[[int], list[int]],
    ) -> list[tuple[int, int]]:
        """Rebuild the group's self tables in the target pool.

        Each block moves once and has as many owners after as before; the tables are the same up to the one-to-one
        renaming of blocks that is returned.
        """
        renamed: dict[int, int] = {}
        for seq in group.seqs:
            table = self.block_tables.get(seq.seq_id)
            if table is None:
                continue
            target.share(renamed[block] for block in table if block in renamed)  # moved with another sequence
            alone = [block for block in table if block not in renamed]
            renamed.update(zip(alone, allocate(len(alone)), strict=True))
            source.free(table)
            self._own(seq, [renamed[block] for block in table], target)
        return list(renamed.items())
