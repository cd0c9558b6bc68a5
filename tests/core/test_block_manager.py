"""Block manager: the accounting equations, and that every sequence reads back its own tokens whatever is moved."""

from __future__ import annotations

import copy
from collections import defaultdict
from contextlib import suppress
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from interruptions import interrupted_after
from simulated_cache import SimulatedCache, encoded, fork, make_group

from transept.core.scheduling.block_allocator import BlockError
from transept.core.scheduling.block_manager import BlockSpaceManager
from transept.core.scheduling.sequence import SampledToken, Sequence, SequenceStatus
from transept.core.scheduling.sequence_group import SequenceGroup


def blocks_of(manager: BlockSpaceManager, group: SequenceGroup) -> set[int]:
    tables = [manager.block_tables[seq.seq_id] for seq in group.seqs if seq.seq_id in manager.block_tables]
    return {block for table in [*tables, manager.cross_block_tables[group.request_id]] for block in table}


def consecutive(table: list[int]) -> bool:
    return table == list(range(table[0], table[0] + len(table))) if table else True


def longest_free_run(manager: BlockSpaceManager, on_device: set[int]) -> int:
    best = current = 0
    for block in range(manager.num_device_blocks):
        current = 0 if block in on_device else current + 1
        best = max(best, current)
    return best


class BlockManagerMachine(RuleBasedStateMachine):
    """Groups come, grow, fork, move and go; a simulated cache follows every returned pair."""

    @initialize(
        block_size=st.integers(1, 4),
        device=st.integers(0, 24),
        host=st.integers(0, 16),
        window=st.none() | st.integers(1, 10),
        in_host_memory=st.booleans(),
    )
    def make(self, block_size: int, device: int, host: int, window: int | None, in_host_memory: bool) -> None:
        self.manager = BlockSpaceManager(block_size, device, host, window, in_host_memory=in_host_memory)
        self.num_behind: defaultdict[int, int] = defaultdict(int)  # by sequence, tokens whose blocks were given back
        self.cache = SimulatedCache(block_size)
        self.tokens = count(1)
        self.ids = count()
        self.on_device: list[SequenceGroup] = []
        self.on_host: list[SequenceGroup] = []

    def pick(self, data: st.DataObject, groups: list[SequenceGroup]) -> SequenceGroup | None:
        return data.draw(st.sampled_from(groups)) if groups else None

    def free_blocks(self) -> tuple[int, int]:
        return self.manager.num_free_device_blocks, self.manager.num_free_host_blocks

    def device_blocks(self) -> set[int]:
        return set().union(*(blocks_of(self.manager, group) for group in self.on_device))

    def cross_blocks_to_take(self, group: SequenceGroup) -> int:
        """0 where another group on the device uses the same encoder output. Where none does, its blocks are free."""
        key = group.content_key
        shared = key is not None and any(key == other.content_key for other in self.on_device)
        return 0 if shared else -(-group.encoder_seq.num_tokens // self.manager.block_size)

    @rule(
        encoder=st.integers(0, 20),
        content=st.booleans(),
        prompt=st.integers(1, 6),
        others=st.lists(st.integers(0, 5), max_size=2),
        reserve=st.integers(0, 3),
    )
    def allocate(self, encoder: int, content: bool, prompt: int, others: list[int], reserve: int) -> None:
        """A new group, or one that is recomputed and so has several sequences, one of them finished."""
        key = bytes([encoder]) if content else None
        tokens = [next(self.tokens) for _ in range(prompt)]
        group = make_group(f"r{next(self.ids)}", encoder, tokens, content_key=key)
        for extra in others:
            seq = fork(group.seqs[0])
            for _ in range(extra):
                seq.append_token(SampledToken(next(self.tokens), 0.0, None))
            group.seqs.append(seq)
        if others:
            group.seqs[0].status = SequenceStatus.STOPPED
        size = self.manager.block_size
        cross = -(-encoder // size)
        own = sum(-(-seq.num_tokens // size) for seq in group.seqs if not seq.finished)
        needed = own + self.cross_blocks_to_take(group)
        free, host_free = self.free_blocks()
        assert self.manager.can_allocate(group, reserve) == (needed + reserve <= free)
        if needed > free:
            with pytest.raises(BlockError):
                self.manager.allocate(group)
            return
        if needed > free or own + cross > self.manager.num_device_blocks:
            return
        hit, counts = self.manager.is_encoded(group), (self.manager.num_encoder_runs, self.manager.num_encoder_hits)
        self.manager.allocate(group)
        cross_table = self.manager.cross_block_tables[group.request_id]
        assert len(cross_table) == cross
        assert self.free_blocks() == (free - needed, host_free)
        assert self.manager.num_encoder_runs == counts[0] + (not hit)
        assert self.manager.num_encoder_hits == counts[1] + hit
        if not hit:
            for i, value in enumerate(encoded(group)):
                self.cache.write(cross_table, i, value)
        for seq in group.unfinished_seqs:
            for i, token in enumerate(seq.prompt_token_ids + seq.output_token_ids):
                self.cache.write(self.manager.block_tables[seq.seq_id], i, token)
        self.on_device.append(group)

    @rule(data=st.data())
    def decode(self, data: st.DataObject) -> None:
        """One token for every sequence of a group. can_append_slots must tell exactly what appending would do."""
        group = self.pick(data, self.on_device)
        if group is None:
            return
        seqs = group.unfinished_seqs
        for seq in seqs:
            seq.append_token(SampledToken(next(self.tokens), 0.0, None))
        can = self.manager.can_append_slots(group)
        trial = copy.deepcopy(self.manager)
        if not can:
            with suppress(BlockError) if self.manager.window else pytest.raises(BlockError, match="only 0 are free"):
                [trial.append_slots(seq) for seq in seqs]  # what a window gives back is not counted
            for seq in seqs:
                seq.output_token_ids.pop()
            return
        for seq in seqs:
            pair = self.manager.append_slots(seq)
            if pair:
                self.cache.copy([pair])
        for seq in seqs:  # a step writes after all copies
            table, size = self.manager.block_tables[seq.seq_id], self.manager.block_size
            unseen = seq.num_tokens - (self.manager.window or seq.num_tokens)
            self.num_behind[seq.seq_id] = max(unseen, 0) // size * size
            self.cache.write(table, seq.num_tokens - 1 - self.num_behind[seq.seq_id], seq.output_token_ids[-1])
            assert len(table) == -(-seq.num_tokens // size) - self.num_behind[seq.seq_id] // size

    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        group = self.pick(data, self.on_device)
        if group is None or not group.unfinished_seqs or len(group.seqs) > 5:
            return
        parent = data.draw(st.sampled_from(group.unfinished_seqs))
        child = fork(parent)
        before = self.free_blocks()
        self.manager.fork(parent, child)
        group.seqs.append(child)
        assert self.free_blocks() == before
        assert self.manager.block_tables[child.seq_id] == self.manager.block_tables[parent.seq_id]
        self.num_behind[child.seq_id] = self.num_behind[parent.seq_id]

    @rule(data=st.data())
    def swap_out(self, data: st.DataObject) -> None:
        group = self.pick(data, self.on_device)
        if group is None:
            return
        owned = blocks_of(self.manager, group)
        free, host_free = self.free_blocks()
        assert self.manager.can_swap_out(group) == (len(owned) <= host_free)
        if len(owned) > host_free:
            with pytest.raises(BlockError):
                self.manager.swap_out(group)
            return
        pairs = self.manager.swap_out(group)
        assert {device for device, _ in pairs} == owned
        assert len(pairs) == len(owned)
        self.cache.swap_out(pairs)
        self.on_device.remove(group)
        self.on_host.append(group)
        left = len(owned) - (
            -(-group.encoder_seq.num_tokens // self.manager.block_size) - self.cross_blocks_to_take(group)
        )
        assert self.free_blocks() == (free + left, host_free - len(owned))
        with pytest.raises(BlockError):
            self.manager.swap_out(group)

    @rule(data=st.data(), reserve=st.integers(0, 2))
    def swap_in(self, data: st.DataObject, reserve: int) -> None:
        group = self.pick(data, self.on_host)
        if group is None:
            return
        owned = blocks_of(self.manager, group)
        free, host_free = self.free_blocks()
        can = self.manager.can_swap_in(group, reserve)
        cross = self.manager.cross_block_tables[group.request_id]
        needed = len(owned) - len(cross) + self.cross_blocks_to_take(group)
        assert not can or needed + reserve <= free
        if needed > free:
            with pytest.raises(BlockError):
                self.manager.swap_in(group)
            return
        hit = self.manager.is_encoded(group)
        pairs = self.manager.swap_in(group)
        assert {host for host, _ in pairs} == (owned - set(cross) if hit else owned)
        assert self.free_blocks() == (free - needed, host_free + len(owned))
        if can:
            assert self.manager.can_append_slots(group)
        self.cache.swap_in(pairs)
        self.on_host.remove(group)
        self.on_device.append(group)

    @rule(data=st.data())
    def finish_sequence(self, data: st.DataObject) -> None:
        group = self.pick(data, self.on_device + self.on_host)
        if group is None or not group.unfinished_seqs:
            return
        seq: Sequence = data.draw(st.sampled_from(group.unfinished_seqs))
        seq.status = SequenceStatus.STOPPED
        before = blocks_of(self.manager, group)
        total = sum(self.free_blocks())
        self.manager.free(seq)
        self.manager.free(seq)  # nothing left to free
        assert sum(self.free_blocks()) == total + len(before - blocks_of(self.manager, group))

    @rule(data=st.data())
    def drop_group(self, data: st.DataObject) -> None:
        group = self.pick(data, self.on_device + self.on_host)
        if group is None:
            return
        owned, side = len(blocks_of(self.manager, group)), int(group in self.on_host)
        expected = list(self.free_blocks())
        (self.on_host if side else self.on_device).remove(group)
        kept = 0 if side else len(self.manager.cross_block_tables[group.request_id]) - self.cross_blocks_to_take(group)
        expected[side] += owned - kept
        for seq in group.seqs:
            self.manager.free(seq)
        self.manager.free_cross(group)
        self.manager.free_cross(group)
        assert list(self.free_blocks()) == expected

    @rule(chance=st.integers(0, 5))
    def reset(self, chance: int) -> None:
        if chance:
            return
        self.manager.reset()
        self.on_device.clear()
        self.on_host.clear()
        assert self.free_blocks() == (self.manager.num_device_blocks, self.manager.num_host_blocks)

    @invariant()
    def books_balance_and_everyone_reads_its_own_tokens(self) -> None:
        if not hasattr(self, "manager"):
            return
        self.manager.check_integrity()
        for on_host, groups in ((False, self.on_device), (True, self.on_host)):
            for group in groups:
                cross = self.manager.cross_block_tables[group.request_id]
                assert self.cache.read(cross, group.encoder_seq.num_tokens, on_host) == encoded(group)
                for seq in group.unfinished_seqs:
                    table, tokens = self.manager.block_tables[seq.seq_id], seq.prompt_token_ids + seq.output_token_ids
                    kept = tokens[self.num_behind[seq.seq_id] :]
                    assert self.cache.read(table, len(kept), on_host) == kept


TestBlockManager = BlockManagerMachine.TestCase
TestBlockManager.settings = settings(max_examples=150, stateful_step_count=50)


def test_last_owner_of_a_shared_block_keeps_it() -> None:
    manager = BlockSpaceManager(block_size=4, num_device_blocks=4, num_host_blocks=0)
    group = make_group("r", encoder_tokens=4, prompt=[1, 2])
    manager.allocate(group)
    for _ in range(2):
        child = fork(group.seqs[0])
        manager.fork(group.seqs[0], child)
        group.seqs.append(child)
    (shared,) = manager.block_tables[group.seqs[0].seq_id]
    for seq in group.seqs:
        seq.append_token(SampledToken(3, 0.0, None))
    assert manager.can_append_slots(group)  # two free blocks for three writers
    pairs = [manager.append_slots(seq) for seq in group.seqs]
    assert [pair and pair[0] for pair in pairs] == [shared, shared, None]
    assert manager.num_free_device_blocks == 0
    manager.check_integrity()


def test_what_an_interrupted_call_left_can_be_freed() -> None:
    """Wherever the signal strikes: the group that it ends is dropped, before the books are begun anew."""
    for num_lines in count(1):
        manager = BlockSpaceManager(block_size=4, num_device_blocks=4, num_host_blocks=0)
        group = make_group("r", encoder_tokens=4, prompt=[1, 2])
        child = fork(group.seqs[0])
        with suppress(KeyboardInterrupt), interrupted_after(num_lines, ["block_manager"]) as struck:
            manager.allocate(group)
            manager.fork(group.seqs[0], child)
        for seq in (*group.seqs, child):
            manager.free(seq)
        manager.free_cross(group)
        if not struck:
            break
    assert num_lines > 10


@pytest.mark.parametrize("at_once", [1, 3])
def test_in_a_hosts_memory_as_much_is_kept_as_was_in_use_at_once(at_once: int) -> None:
    """So a long recording, a window after the other, takes the pages of a few windows."""
    pool = BlockSpaceManager(block_size=4, num_device_blocks=100, num_host_blocks=0, in_host_memory=True)
    on_gpu = BlockSpaceManager(block_size=4, num_device_blocks=100, num_host_blocks=0)
    written: set[int] = set()
    for first in range(0, 30, at_once):
        groups = [
            make_group(f"r{index}", encoder_tokens=8, prompt=[1], content_key=bytes([index]))
            for index in range(first, first + at_once)
        ]
        for manager in (pool, on_gpu):
            for group in groups:
                manager.allocate(group)
            if manager is pool:
                written |= {block for group in groups for block in manager.cross_block_tables[group.request_id]}
            for group in groups:
                manager.free(group.seqs[0])
                manager.free_cross(group)
            manager.check_integrity()
    assert len(written) == 2 * 2 * at_once  # blocks of a group, in use and kept
    kept = [index for index in range(30) if pool.is_encoded(make_group("r", 8, [1], content_key=bytes([index])))]
    assert kept == [*range(30 - at_once, 30)]
    assert all(on_gpu.is_encoded(make_group("r", 8, [1], content_key=bytes([index]))) for index in range(30))


def test_a_full_last_block_is_not_copied_when_shared() -> None:
    manager = BlockSpaceManager(block_size=2, num_device_blocks=6, num_host_blocks=0)
    group = make_group("r", encoder_tokens=2, prompt=[1, 2])
    manager.allocate(group)
    child = fork(group.seqs[0])
    manager.fork(group.seqs[0], child)
    child.append_token(SampledToken(3, 0.0, None))
    assert manager.append_slots(child) is None
    assert manager.block_tables[child.seq_id][0] == manager.block_tables[group.seqs[0].seq_id][0]


def test_check_integrity_sees_a_table_changed_from_outside() -> None:
    manager = BlockSpaceManager(block_size=2, num_device_blocks=6, num_host_blocks=2)
    group = make_group("r", encoder_tokens=4, prompt=[1, 2])
    manager.allocate(group)
    manager.check_integrity()
    manager.block_tables[group.seqs[0].seq_id].append(manager.cross_block_tables[group.request_id][0])
    with pytest.raises(BlockError):
        manager.check_integrity()


def test_misuse_is_refused() -> None:
    manager = BlockSpaceManager(block_size=2, num_device_blocks=8, num_host_blocks=8)
    group = make_group("r", encoder_tokens=4, prompt=[1, 2])
    manager.allocate(group)
    with pytest.raises(BlockError, match="twice"):
        manager.allocate(group)
    with pytest.raises(BlockError, match="has a table"):
        manager.fork(group.seqs[0], group.seqs[0])
    manager.swap_out(group)
    with pytest.raises(BlockError, match="swapped out"):
        manager.append_slots(group.seqs[0])


def forked_pair(num_device_blocks: int) -> tuple[BlockSpaceManager, SequenceGroup]:
    """Two sequences that share a half-full block, each with a token to write, beside a cross table of one block."""
    manager = BlockSpaceManager(block_size=4, num_device_blocks=num_device_blocks, num_host_blocks=4)
    group = make_group("r", encoder_tokens=4, prompt=[1, 2])
    manager.allocate(group)
    group.seqs.append(fork(group.seqs[0]))
    manager.fork(*group.seqs)
    for seq in group.seqs:
        seq.append_token(SampledToken(3, 0.0, None))
    return manager, group


@pytest.mark.parametrize(("num_device_blocks", "fits"), [(2, False), (3, True)])
def test_the_copy_of_a_shared_block_is_counted_before_a_step(num_device_blocks: int, fits: bool) -> None:
    manager, group = forked_pair(num_device_blocks)
    assert manager.can_append_slots(group) is fits


@pytest.mark.parametrize(("num_device_blocks", "reserve", "fits"), [(2, 0, False), (3, 0, True), (3, 1, False)])
def test_swapping_in_counts_the_blocks_of_the_next_step(num_device_blocks: int, reserve: int, fits: bool) -> None:
    manager, group = forked_pair(num_device_blocks)
    manager.swap_out(group)
    assert manager.can_swap_in(group, reserve) is fits
