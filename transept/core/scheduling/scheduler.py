"""The scheduler: which requests take part in the next step, and which blocks move for it.

Driven by the engine: add_seq_group for every request, then schedule -> the execution side runs the step -> the engine
appends (and forks) tokens -> free_finished_seq_groups, again and again. Decides by budgets and free blocks only; what
is computed is not its business.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import count
from operator import attrgetter

from transept.core.config import SchedulerConfig
from transept.core.scheduling.block_allocator import BlockError
from transept.core.scheduling.block_manager import AllocStatus, BlockSpaceManager
from transept.core.scheduling.encoder_slices import EncoderSlices, EncodeUnderWay
from transept.core.scheduling.in_flight import SchedulerOutputs
from transept.core.scheduling.oversized import refuse_oversized
from transept.core.scheduling.sequence import Sequence, SequenceStatus
from transept.core.scheduling.sequence_group import SequenceGroup
from transept.core.scheduling.step import PENDING, BlockTable, Encode
from transept.errors import ParameterError

_ARRIVAL = attrgetter("arrival")


def id_in_use(request_id: str) -> ParameterError:
    """The error of a request whose id another one has."""
    message = f"{{request_id}} {request_id!r} is in use; give every request an id of its own"
    return ParameterError(message, param="request_id", value=request_id)


def forget_pending(seqs: Iterable[Sequence]) -> None:
    """Take back what a step that is issued ahead sees in place of tokens that are not known yet (`look_ahead`)."""
    for seq in seqs:
        if seq.output_token_ids and seq.output_token_ids[-1] == PENDING:
            seq.status = SequenceStatus.RUNNING
            seq.output_token_ids.pop()  # last, so that this may be interrupted and called again


class Scheduler:
    """Continuous batching, first come first served by SequenceGroup.arrival.

    A group is in one of two lists, both in order of arrival: `running` (blocks on the device, one token a sequence in
    each step) or `queue` (waiting without blocks, or swapped out with blocks on the host). One running group at a time
    may have no rows yet, since its encoder takes several steps (`sliced`).

    slices: how much of an encoder a step computes beside requests that decode; None: all of it. slices_encoders: False:
        likewise; set by whoever drives the engine core.
    """

    def __init__(
        self, config: SchedulerConfig, block_manager: BlockSpaceManager, slices: EncoderSlices | None = None
    ) -> None:
        self.config = config
        self.block_manager = block_manager
        self.slices = slices or EncoderSlices(1)
        self.slices_encoders = True
        self.sliced: EncodeUnderWay | None = None
        self.running: list[SequenceGroup] = []
        self.queue: list[SequenceGroup] = []
        self._groups: dict[str, SequenceGroup] = {}  # both lists, by request id
        self._encode_ids = count()

    @property
    def has_unfinished(self) -> bool:
        """Whether any group still waits or runs."""
        return bool(self._groups)

    @property
    def has_ample_blocks(self) -> bool:
        """Whether no running sequence will miss a block in the next step: each takes one at most."""
        return sum(len(group.seqs) for group in self.running) <= self.block_manager.num_free_device_blocks

    def add_seq_group(self, group: SequenceGroup) -> None:
        """Queue a request.

        Raises CapacityError when it could not run even with the engine to itself, ParameterError when its id is in use.
        """
        if group.request_id in self._groups:
            raise id_in_use(group.request_id)
        refuse_oversized(group, self.config, self.block_manager)
        self._groups[group.request_id] = group
        insort(self.queue, group, key=_ARRIVAL)

    def abort_seq_group(self, request_id: str) -> SequenceGroup | None:
        """Drop a request, wherever it is, with its blocks. Returns it, or None when there is none (any more)."""
        group = self._groups.pop(request_id, None)
        if group is None:
            return None
        for groups in (self.running, self.queue):  # in neither, where an interruption struck while it was added
            if group in groups:
                groups.remove(group)
        for seq in group.unfinished_seqs:
            seq.status = SequenceStatus.ABORTED
        self._free(group)
        return group

    def restart(self, group: SequenceGroup) -> None:
        """Put a running group back into the queue: it keeps its tokens, and its cache is computed anew."""
        self.running.remove(group)
        self._free(group)
        self._requeue(group, SequenceStatus.WAITING)

    def restart_swapped(self) -> None:
        """Compute anew what was swapped out, since the copies on the host cannot be trusted."""
        for group in self.queue:
            if group.unfinished_seqs[0].status is SequenceStatus.SWAPPED:
                self._free(group)
                for seq in group.unfinished_seqs:
                    seq.status = SequenceStatus.WAITING

    def restart_all(self) -> None:
        """Put every group back into the queue, with the tokens that it has; none holds blocks any more.

        For when a call to this class or to the block manager was cut short, and the books cannot be trusted.
        """
        self.block_manager.reset()
        forget_pending(seq for group in self._groups.values() for seq in group.seqs)
        self._groups = {name: group for name, group in self._groups.items() if not group.finished}
        self.running, self.queue, self.sliced = [], [], None
        for group in self._groups.values():
            self._requeue(group, SequenceStatus.WAITING)

    def forget_encoded(self, group: SequenceGroup, table: BlockTable, kept: Collection[SequenceGroup] = ()) -> None:
        """Trust nothing that the group's encoder was to write into a cross table; who shares the table restarts.

        kept: groups that do not.
        """
        self.block_manager.forget_encoded(group)
        for other in [each for each in self.running if each is not group and each not in kept]:
            if self.block_manager.cross_block_tables[other.request_id] is table:
                self.restart(other)

    def fork_seq(self, parent: Sequence, child: Sequence) -> None:
        """Let a new sequence of a running group share its parent's blocks. The caller puts it into the group."""
        self.block_manager.fork(parent, child)

    def free_seq(self, seq: Sequence) -> None:
        """Free the blocks of one sequence that goes no further, while its group may go on."""
        self.block_manager.free(seq)

    def free_finished_seq_groups(self) -> list[SequenceGroup]:
        """Free what finished in the last step, and forget finished groups. Returns those. Called after every step."""
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

        A step either preempts or admits, never both: what was just preempted must not come straight back, nor a
        younger group take its place.

        under_way: running groups that wait for their tokens of other steps, and so take part in none and keep their
        blocks. num_steps: how many steps may be under way, among which running sequences are divided.
        """
        outputs = SchedulerOutputs()
        preempts = self._grow_running(outputs, under_way, num_steps)
        slices = self.slices.num_layers > 1 and self.slices_encoders and bool(outputs.groups)
        if self.sliced is not None:
            self._go_on_encoding(self.sliced, outputs, slices)
        if self.queue and not preempts:
            self._admit(outputs, slices)
        return outputs

    def _grow_running(self, outputs: SchedulerOutputs, under_way: Collection[SequenceGroup], num_steps: int) -> bool:
        """Give every running sequence the slot of its next token, preempting from the youngest group.

        Returns whether any was preempted, or will be, since the youngest is under way.

        Invariant: groups before `index` have their slots. The victim is always the last of the list, so it never had
        its slots given in this step, and the oldest group loses blocks to nobody: some group always goes on.
        """
        preempted = False
        index = num_seqs = 0
        share = -(-sum(len(group.unfinished_seqs) for group in self.running) // num_steps)
        ample = self.has_ample_blocks
        while index < len(self.running) and (num_steps == 1 or num_seqs < share):
            group = self.running[index]
            if group in under_way or self._is_encoding(group):
                index += 1
                continue
            if ample or self.block_manager.can_append_slots(group):
                self._run(group, outputs)
                num_seqs += len(group.unfinished_seqs)
                index += 1
                continue
            if len(self.running) == 1:
                raise BlockError(f"request {group.request_id!r} runs alone but {self._free_blocks()} do not suffice")
            if self.running[-1] in under_way:
                return True
            self._preempt(self.running.pop(), outputs)
            preempted = True
        return preempted

    def _go_on_encoding(self, sliced: EncodeUnderWay, outputs: SchedulerOutputs, slices: bool) -> None:
        """Put the next slice of an encode into the step, or all that is left. After the last slice its group has rows.

        `_admit` has kept room for these.
        """
        self._encode(
            sliced, self._layers_in_step(sliced.encode.inputs.num_tokens, sliced.num_layers, 0, slices), outputs
        )
        if self.sliced is None:
            self._run(sliced.group, outputs, is_prefill=True)

    def _layers_in_step(self, num_tokens: int, num_computed: int, work: int, slices: bool) -> int:
        """Return how many further layers of an input a step computes; see EncoderSlices.layers."""
        left = self.slices.num_layers - num_computed
        return self.slices.layers(num_tokens, num_computed, work) if slices else left

    def _encode(self, sliced: EncodeUnderWay, count: int, outputs: SchedulerOutputs) -> None:
        """Put further layers of an encode into the step."""
        encode, computed = sliced.encode, sliced.num_layers + count
        is_last = computed == self.slices.num_layers
        outputs.encoding.append(sliced.group)
        outputs.step.encodes.append(encode if is_last else replace(encode, num_layers=computed))
        outputs.encoder_work += count * encode.inputs.num_tokens
        self.sliced = None if is_last else EncodeUnderWay(sliced.group, encode, computed)

    def _is_encoding(self, group: SequenceGroup) -> bool:
        """True if the group's encoder takes several steps, of which the last is still to come."""
        return self.sliced is not None and self.sliced.group is group

    def _admit(self, outputs: SchedulerOutputs, slices: bool) -> None:
        """Start groups from the head of the queue, swapped or waiting alike, until one does not fit.

        Invariant: nothing overtakes the head of the queue. With nothing running the head always fits: all blocks and
        budgets are free then, and `add_seq_group` refused what exceeds them. Beside running sequences a prefill must
        leave one free block for each, so that it is not preempted at their next block boundary. A group whose encoder
        takes several steps leaves room for its prompt beside as many rows as there may be by then.

        slices: whether encoders may take several steps, one after the other.
        """
        config = self.config
        num_seqs = sum(group.max_num_seqs for group in self.running)
        decoder_tokens = sum(
            sum(data.num_tokens for data in each.seq_data.values()) if each.is_prefill else len(each.seq_data)
            for each in outputs.step.decodes
        )
        encoder_tokens = sum(encode.inputs.num_tokens for encode in outputs.step.encodes)
        while self.queue:
            group = self.queue[0]
            seqs = group.unfinished_seqs
            swapped = seqs[0].status is SequenceStatus.SWAPPED
            runs_encoder = not swapped and not self.block_manager.is_encoded(group)
            if self.sliced is not None and (runs_encoder or self.sliced.writes_for(group)):
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
            if swapped:
                if not self.block_manager.can_swap_in(group, reserve):
                    return
                outputs.step.moves.swap_in.extend(self.block_manager.swap_in(group))
            else:
                if self.block_manager.can_allocate(group, reserve) is not AllocStatus.OK:
                    return
                self.block_manager.allocate(group)
            for seq in seqs:
                seq.status = SequenceStatus.RUNNING
            insort(self.running, self.queue.pop(0), key=_ARRIVAL)
            if runs_encoder:
                encode = Encode(next(self._encode_ids), inputs, self.block_manager.get_cross_block_table(group))
                self._encode(EncodeUnderWay(group, encode, 0), num_layers, outputs)
            if not self._is_encoding(group):
                self._run(group, outputs, is_prefill=not swapped)

    def _preempt(self, group: SequenceGroup, outputs: SchedulerOutputs) -> None:
        """Take a group's device blocks: to the host if it has room for all of them, else to be recomputed."""
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
        insort(self.queue, group, key=_ARRIVAL)

    def _run(self, group: SequenceGroup, outputs: SchedulerOutputs, is_prefill: bool = False) -> None:
        """Put a group with blocks on the device into the step."""
        manager = self.block_manager
        seqs = group.unfinished_seqs
        if not seqs:
            return  # it has ended, or will with the token that is pending
        for seq in () if is_prefill else seqs:  # the table of a prefill has the slots of all its tokens
            copied = manager.append_slots(seq)
            if copied is not None:
                outputs.step.moves.copy.append(copied)
        metadata = group.metadata
        if is_prefill or metadata is None or metadata.is_prefill or [*metadata.seq_data] != [s.seq_id for s in seqs]:
            table = manager.get_cross_block_table(group)
            encode_ids = (each.encode_id for each in outputs.step.encodes if each.cross_block_table is table)
            tables = {seq.seq_id: manager.get_block_table(seq) for seq in seqs}
            metadata = group.metadata = group.described(is_prefill, next(encode_ids, None), tables, table)
        outputs.groups.append(group)
        outputs.step.decodes.append(metadata)

    def _free(self, group: SequenceGroup) -> None:
        if self._is_encoding(group):
            self.sliced = None
            self.block_manager.forget_encoded(group)  # what was to be written there is not
        for seq in group.seqs:
            self.block_manager.free(seq)
        self.block_manager.free_cross(group)

    def _free_blocks(self) -> str:
        return f"{self.block_manager.num_free_device_blocks} free of {self.block_manager.num_device_blocks} blocks"


def _num_prompt_rows(group: SequenceGroup) -> int:
    """Decoder tokens of a step in which a group is computed from its beginning."""
    return sum(seq.num_tokens for seq in group.unfinished_seqs)
