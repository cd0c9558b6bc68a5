"""Scheduler: decides which requests take part in the next step, and which blocks move for it.

The engine core calls add_seq_group for every request. For each step it calls schedule, lets the executor compute the
step, appends tokens, and calls free_finished_seq_groups. The scheduler decides by budgets and free blocks alone.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import count
from operator import attrgetter

from transept.core.config import SchedulerConfig
from transept.core.scheduling.adapter_slots import AdapterSlots
from transept.core.scheduling.block_allocator import BlockError
from transept.core.scheduling.block_manager import BlockSpaceManager
from transept.core.scheduling.drafting import Drafting
from transept.core.scheduling.encoder_slices import EncoderSlices, EncodeUnderWay
from transept.core.scheduling.in_flight import SchedulerOutputs
from transept.core.scheduling.oversized import refuse_oversized
from transept.core.scheduling.sequence import Sequence, SequenceStatus
from transept.core.scheduling.sequence_group import SequenceGroup
from transept.core.scheduling.step import PENDING, BlockTable, Encode
from transept.errors import ParameterError

_ARRIVAL = attrgetter("arrival")
URGENT_STEPS = 100  # steps after an urgent request in which encodes take several steps, since another may follow


def id_in_use(request_id: str) -> ParameterError:
    """Return the error of a request whose id another request has."""
    message = f"{{request_id}} {request_id!r} is in use; give every request a unique id"
    return ParameterError(message, param="request_id", value=request_id)


def forget_pending(seqs: Iterable[Sequence]) -> None:
    """Remove the placeholders of tokens that are not known yet (`look_ahead`)."""
    for seq in seqs:
        if seq.output_token_ids and seq.output_token_ids[-1] == PENDING:
            seq.status = SequenceStatus.RUNNING
            seq.output_token_ids.pop()  # last, so that this may be interrupted and called again


class Scheduler:
    """Continuous batching, first come first served by SequenceGroup.arrival.

    A group is in one of two lists, both in order of arrival: `running` (blocks on the device, one token for each
    sequence in each step) or `queue` (waiting without blocks, or swapped out with blocks on the host). One running
    group at a time may have no rows yet, because its encoder takes several steps (`sliced`). A group that only encodes
    never has rows: it runs while its encode is in a step.

    If encodes may take several steps, groups that are not urgent pause while an urgent one runs, and keep their blocks.
    `sliced` pauses as well, from the step in which an urgent group starts. An urgent group's encode takes one step.

    slices: sizes of the encoder's parts in steps with decoding requests; None: every encode takes one step.
    slices_encoders: False: likewise; set through EngineCore.keeps_thread.
    """

    def __init__(
        self, config: SchedulerConfig, block_manager: BlockSpaceManager, slices: EncoderSlices | None = None
    ) -> None:
        self.config, self.block_manager = config, block_manager
        self.slices, self.adapters = slices or EncoderSlices(1), AdapterSlots()  # the engine sets the number of these
        self.slices_encoders = True
        self._separates = self.slices.num_layers > 1  # urgent groups from others; on a GPU, more rows cost little
        self.drafting = Drafting(config)
        self.sliced: EncodeUnderWay | None = None  # of a group that is not urgent
        self._since_urgent = URGENT_STEPS  # steps since the last one with an urgent group
        self.running: list[SequenceGroup] = []
        self.queue: list[SequenceGroup] = []
        self._groups: dict[str, SequenceGroup] = {}  # both lists, by request id
        self._encode_ids = count()

    @property
    def has_unfinished(self) -> bool:
        """True if a group waits or runs."""
        return bool(self._groups)

    @property
    def has_ample_blocks(self) -> bool:
        """True if there is a free block for each running sequence, which takes at most one in the next step."""
        return sum(len(group.seqs) for group in self.running) <= self.block_manager.num_free_device_blocks

    def add_seq_group(self, group: SequenceGroup) -> None:
        """Queue a request.

        Raises CapacityError if it could not run even alone, ParameterError if its id is in use.
        """
        if group.request_id in self._groups:
            raise id_in_use(group.request_id)
        refuse_oversized(group, self.config, self.block_manager)
        self._groups[group.request_id] = group
        insort(self.queue, group, key=_ARRIVAL)

    def abort_seq_group(self, request_id: str) -> SequenceGroup | None:
        """Drop a waiting or running request and free its blocks. Returns it, or None for an unknown request."""
        group = self._groups.pop(request_id, None)
        if group is None:
            return None
        for groups in (self.running, self.queue):  # in neither if an interruption struck while it was added
            if group in groups:
                groups.remove(group)
        for seq in group.unfinished_seqs:
            seq.status = SequenceStatus.ABORTED
        self._free(group)
        return group

    def restart(self, group: SequenceGroup) -> None:
        """Return a running group to the queue. It keeps its tokens, and its cache is recomputed."""
        self.running.remove(group)
        self._free(group)
        self._requeue(group, SequenceStatus.WAITING)

    def restart_swapped(self) -> None:
        """Recompute swapped-out groups, because a failed step may have left their copies on the host incomplete."""
        for group in self.queue:
            if group.unfinished_seqs[0].status is SequenceStatus.SWAPPED:
                self._free(group)
                for seq in group.unfinished_seqs:
                    seq.status = SequenceStatus.WAITING

    def restart_all(self) -> None:
        """Return every group to the queue, with its tokens and without blocks.

        Called after an interruption of this class or of the block manager, whose state may be inconsistent.
        """
        self.block_manager.reset()
        forget_pending(seq for group in self._groups.values() for seq in group.seqs)
        self._groups = {name: group for name, group in self._groups.items() if not group.finished}
        self.running, self.queue, self.sliced = [], [], None
        for group in self._groups.values():
            self._requeue(group, SequenceStatus.WAITING)

    def forget_encoded(self, group: SequenceGroup, table: BlockTable, kept: Collection[SequenceGroup] = ()) -> None:
        """Forget a cross table because the group's encode failed. Groups that share it restart, except `kept`."""
        self.block_manager.forget_encoded(group)
        for other in [each for each in self.running if each is not group and each not in kept]:
            if self.block_manager.cross_block_tables[other.request_id] is table:
                self.restart(other)

    def free_finished_seq_groups(self) -> list[SequenceGroup]:
        """Free the blocks of sequences that have finished, and forget finished groups. Returns these groups."""
        finished: list[SequenceGroup] = []
        for group in self.running:
            ended = [seq for seq in group.seqs if seq.finished]
            for seq in ended:
                self.block_manager.free(seq)
            if len(ended) == len(group.seqs):
                self.block_manager.free_cross(group)
                finished.append(group)
        if finished:
            for group in finished:
                del self._groups[group.request_id]
            self.running = [group for group in self.running if group.request_id in self._groups]
        return finished

    def schedule(self, under_way: Collection[SequenceGroup] = (), num_steps: int = 1) -> SchedulerOutputs:
        """Decide the next step: every running group that keeps its blocks, and prefills that fit beside them.

        A step either preempts or admits, never both. So a preempted group does not return at once, and no younger group
        takes its place.

        under_way: running groups that are in another step; they take part in no other and keep their blocks. num_steps:
        maximum number of steps in flight, among which running sequences are divided.
        """
        outputs = SchedulerOutputs()
        preempts = self._grow_running(outputs, under_way, num_steps)
        expects_urgent = self._since_urgent < URGENT_STEPS
        slices = self._separates and self.slices_encoders and (bool(outputs.waiting) or expects_urgent)
        if not preempts and self.queue and self.queue[0].is_urgent:
            self._admit(outputs, slices)
        is_urgent = self._separates and outputs.is_urgent
        if (sliced := self.sliced) is not None:
            num_layers = 0  # none; but the step has the encode, so that the execution side keeps it
            if not is_urgent:
                num_layers = self._layers_in_step(sliced.encode.inputs.num_tokens, sliced.num_layers, 0, slices)
            self.sliced = self._encode(sliced, num_layers, outputs)
            if self.sliced is None:  # that was the last part; `_admit` has kept room for the group's rows
                self._run(sliced.group, outputs, is_prefill=True)
        if not preempts and not is_urgent and self.queue and not self.queue[0].is_urgent:
            self._admit(outputs, slices)
        self.drafting.add_drafts(outputs, self.running, self.block_manager)
        self._since_urgent = 0 if is_urgent else self._since_urgent + 1
        return outputs

    def _grow_running(self, outputs: SchedulerOutputs, under_way: Collection[SequenceGroup], num_steps: int) -> bool:
        """Give every running sequence the slot of its next token. Preempts the youngest groups if blocks are short.

        Returns True if a group was preempted, or will be once it is no longer under way.

        Invariant: groups before `index` have their slots. The victim is always the last that decodes, so it has no slot
        of this step yet. The oldest group is never preempted for another, so some group always makes progress.
        """
        preempted = False
        index = num_seqs = 0
        share = -(-sum(len(group.unfinished_seqs) for group in self.running if group.pooling is None) // num_steps)
        ample = self.has_ample_blocks
        while index < len(self.running) and (num_steps == 1 or num_seqs < share):
            group = self.running[index]
            if self._separates and self.running[0].is_urgent and not group.is_urgent:
                break  # urgent groups are first
            if group in under_way or self._is_encoding(group) or group.pooling is not None:
                index += 1
                continue
            if ample or self.block_manager.can_append_slots(group):
                self._run(group, outputs)
                num_seqs += len(group.unfinished_seqs)
                index += 1
                continue
            decoding = [each for each in self.running if each.pooling is None]
            if len(decoding) == 1:
                manager = self.block_manager
                free = f"{manager.num_free_device_blocks} of {manager.num_device_blocks} blocks free"
                raise BlockError(f"request {group.request_id!r} runs alone, and lacks a block with {free}")
            if decoding[-1] in under_way:
                return True
            self.running.remove(decoding[-1])
            self._preempt(decoding[-1], outputs)
            preempted = True
        return preempted

    def _layers_in_step(self, num_tokens: int, num_computed: int, work: int, slices: bool) -> int:
        """Return the number of further layers of an input in the step; see EncoderSlices.layers."""
        if slices:
            return self.slices.layers(num_tokens, num_computed, work)
        return self.slices.num_layers - num_computed

    def _encode(self, sliced: EncodeUnderWay, count: int, outputs: SchedulerOutputs) -> EncodeUnderWay | None:
        """Add `count` further layers of an encode to the step. Returns the rest; None if these are the last layers."""
        encode, computed = sliced.encode, sliced.num_layers + count
        is_last = computed == self.slices.num_layers
        outputs.add_encode(sliced.group, encode if is_last else replace(encode, num_layers=computed), count)
        return None if is_last else EncodeUnderWay(sliced.group, encode, computed)

    def _is_encoding(self, group: SequenceGroup) -> bool:
        """True if the group's encoder takes several steps, and has not completed."""
        return self.sliced is not None and self.sliced.group is group

    def _admit(self, outputs: SchedulerOutputs, slices: bool) -> None:
        """Start groups from the head of the queue, swapped or waiting, until one does not fit.

        Invariant: no group overtakes the head of the queue. If no group runs, the head always fits: all blocks and
        budgets are free, and `add_seq_group` has refused larger requests. A prefill must leave one free block for each
        running sequence, so that it is not preempted at their next block boundary. While a group's encoder takes
        several steps, room for its prompt is reserved beside the maximum number of other rows.

        If the head is urgent, only urgent groups start; another call starts the others.

        slices: True if encoders that are not urgent may take several steps, one encoder at a time.
        """
        config = self.config
        num_seqs = sum(group.max_num_seqs for group in self.running)
        decoder_tokens = sum(
            sum(data.num_tokens for data in each.seq_data.values()) if each.is_prefill else len(each.seq_data)
            for each in outputs.step.decodes
        )
        encoder_tokens = sum(encode.inputs.num_tokens for encode in outputs.step.encodes)
        is_urgent = self.queue[0].is_urgent
        slices = slices and not is_urgent
        while self.queue and self.queue[0].is_urgent == is_urgent:
            group = self.queue[0]
            seqs = group.unfinished_seqs
            swapped = seqs[0].status is SequenceStatus.SWAPPED
            runs_encoder = not swapped and not self.block_manager.is_encoded(group)
            if self.sliced is not None and ((runs_encoder and not is_urgent) or self.sliced.writes_for(group)):
                return
            inputs = group.encoder_seq.inputs.encoder
            num_layers = self._layers_in_step(inputs.num_tokens, 0, outputs.encoder_work, slices) if runs_encoder else 0
            takes_several = 0 < num_layers < self.slices.num_layers
            waiting = group if takes_several else None if self.sliced is None else self.sliced.group
            num_seqs += group.max_num_seqs
            decoder_tokens += len(seqs) if swapped else _num_prompt_rows(group)
            encoder_tokens += inputs.num_tokens if runs_encoder else 0
            if (
                (runs_encoder and not num_layers)
                or num_seqs > config.max_num_seqs
                or decoder_tokens > config.max_decoder_tokens
                or encoder_tokens > config.max_encoder_tokens
                or (waiting and num_seqs - waiting.max_num_seqs + _num_prompt_rows(waiting) > config.max_decoder_tokens)
            ):
                return
            reserve = num_seqs - group.max_num_seqs
            fits = self.block_manager.can_swap_in if swapped else self.block_manager.can_allocate
            if not fits(group, reserve) or not self.adapters.serve(group, self.running, outputs.step.loads):
                return
            if swapped:
                outputs.step.moves.swap_in.extend(self.block_manager.swap_in(group))
            else:
                self.block_manager.allocate(group)
            for seq in seqs:
                seq.status = SequenceStatus.RUNNING
            insort(self.running, self.queue.pop(0), key=_ARRIVAL)
            if runs_encoder:
                table = self.block_manager.cross_block_tables[group.request_id]
                encode = Encode(next(self._encode_ids), inputs, table, None, group.pooling, group.adapter_slot)
                self.sliced = self._encode(EncodeUnderWay(group, encode, 0), num_layers, outputs) or self.sliced
            if not self._is_encoding(group):
                self._run(group, outputs, is_prefill=not swapped)

    def _preempt(self, group: SequenceGroup, outputs: SchedulerOutputs) -> None:
        """Free a group's device blocks: swap them to the host if all of them fit, else recompute them later."""
        swap = not self._is_encoding(group) and self.block_manager.can_swap_out(group)
        if swap:
            outputs.step.moves.swap_out.extend(self.block_manager.swap_out(group))
        else:
            self._free(group)
        self._requeue(group, SequenceStatus.SWAPPED if swap else SequenceStatus.WAITING)

    def _requeue(self, group: SequenceGroup, status: SequenceStatus) -> None:
        group.metadata = None
        group.num_restarts += 1
        for seq in group.unfinished_seqs:
            seq.status = status
            seq.draft_token_ids.clear()
        insort(self.queue, group, key=_ARRIVAL)

    def _run(self, group: SequenceGroup, outputs: SchedulerOutputs, is_prefill: bool = False) -> None:
        """Add a group with blocks on the device to the step."""
        manager = self.block_manager
        seqs = group.unfinished_seqs
        if not seqs or group.pooling is not None:
            return  # it has ended, or will end with its pending token; or it only encodes
        for seq in () if is_prefill else seqs:  # the table of a prefill has the slots of all its tokens
            copied = manager.append_slots(seq)
            if copied is not None:
                outputs.step.moves.copy.append(copied)
        metadata = group.metadata
        if metadata is not None and (is_prefill or metadata.is_prefill or metadata.encode_id is not None):
            metadata = None
        if metadata is None or [*metadata.seq_data] != [seq.seq_id for seq in seqs]:
            table = manager.cross_block_tables[group.request_id]
            encode_ids = (each.encode_id for each in outputs.step.encodes if each.cross_block_table is table)
            tables = {seq.seq_id: manager.block_tables[seq.seq_id] for seq in seqs}
            metadata = group.metadata = group.described(is_prefill, next(encode_ids, None), tables, table)
        outputs.add_decode(group, metadata)

    def _free(self, group: SequenceGroup) -> None:
        if self._is_encoding(group):
            self.sliced = None
            self.block_manager.forget_encoded(group)  # the table is incomplete
        for seq in group.seqs:
            self.block_manager.free(seq)
        self.block_manager.free_cross(group)


def _num_prompt_rows(group: SequenceGroup) -> int:
    """Return the number of decoder tokens of a group's prefill."""
    return sum(seq.num_tokens for seq in group.unfinished_seqs)
