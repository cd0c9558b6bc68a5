"""The engine's loop around a scheduler, with a model that needs no weights."""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import pairwise

import numpy as np
from simulated_cache import SimulatedCache, encoded, fork, make_group

from transept.core.config import SchedulerConfig
from transept.core.engine_core import URGENT
from transept.core.request.pooling import Pooling
from transept.core.scheduling.block_manager import BlockSpaceManager
from transept.core.scheduling.encoder_slices import EncoderSlices
from transept.core.scheduling.in_flight import SchedulerOutputs
from transept.core.scheduling.scheduler import URGENT_STEPS, Scheduler
from transept.core.scheduling.sequence import SampledToken, SequenceStatus
from transept.core.scheduling.sequence_group import SequenceGroup

BLOCK_SIZE = 4
NUM_LAYERS = 4  # of the encoder


class Simulation:
    """A scheduler, a cache that remembers, and a model that predicts from its context.

    The next token depends on the request, the sample and everything read from the cache, so a wrong block shows in the
    output; `expected` computes the same without any cache.
    """

    def __init__(
        self,
        device: int = 64,
        host: int = 0,
        max_num_seqs: int = 8,
        max_decoder_tokens: int = 1000,
        max_encoder_tokens: int = 1000,
        layers_per_step: int | None = None,
        make_scheduler: Callable[..., Scheduler] = Scheduler,
    ) -> None:
        """layers_per_step: None: encoders take one step."""
        self.config = SchedulerConfig(max_num_seqs, max_decoder_tokens, max_encoder_tokens)
        self.manager = BlockSpaceManager(BLOCK_SIZE, device, host)
        slices = None if layers_per_step is None else EncoderSlices(NUM_LAYERS, layers_per_step)
        self.scheduler = make_scheduler(self.config, self.manager, slices)
        self.slices, self.since_urgent = slices is not None, URGENT_STEPS
        self.layers: dict[int, int] = {}  # of encodes under way, by their id
        self.num_embedded = 0
        self.num_sliced = 0  # encodes that took several steps, to their end
        self.cache = SimulatedCache(BLOCK_SIZE)
        self.arrivals = 0
        self.groups: dict[str, SequenceGroup] = {}
        self.finished: list[str] = []
        self.preempted_by_swap = self.preempted_by_recompute = self.copied = 0
        self.encoder_runs = self.encoder_hits = 0

    def add(
        self,
        encoder: int = 8,
        prompt: int = 2,
        n: int = 1,
        max_tokens: int = 8,
        content: bool = False,
        urgent: bool = False,
    ) -> SequenceGroup:
        """content: the encoder input is that of all others of this length."""
        name, key = f"r{self.arrivals}", bytes([encoder]) if content else None
        arrival = self.arrivals - (URGENT if urgent else 0)
        return self._add(make_group(name, encoder, [self.arrivals] * prompt, n, max_tokens, arrival, key))

    def add_encode(self, encoder: int) -> SequenceGroup:
        """Add a request that only encodes."""
        return self._add(
            make_group(f"r{self.arrivals}", encoder, [], arrival=self.arrivals, pooling=Pooling(), content_key=b"same")
        )

    def _add(self, group: SequenceGroup) -> SequenceGroup:
        self.arrivals += 1
        self.scheduler.add_seq_group(group)
        self.groups[group.request_id] = group
        return group

    def step(self) -> SchedulerOutputs:
        running_before = list(self.scheduler.running)
        outputs = self.scheduler.schedule()
        self.check_step(outputs, running_before)
        self.cache.swap_out(outputs.step.moves.swap_out)
        self.cache.swap_in(outputs.step.moves.swap_in)
        self.cache.copy(outputs.step.moves.copy)
        self.copied += len(outputs.step.moves.copy)
        self.encode(outputs)
        drawn = [self.run(index, outputs) for index in range(len(outputs.waiting))]
        for group, tokens in zip(outputs.groups, drawn, strict=True):
            self.append(group, tokens)
        self.end_encodes(outputs)
        self.finished += [group.request_id for group in self.scheduler.free_finished_seq_groups()]
        self.manager.check_integrity()
        return outputs

    def encode(self, outputs: SchedulerOutputs, failing: Collection[str] = ()) -> None:
        """Write what the encoders of a step write. failing: requests whose encoders fail."""
        for group, encode, _ in outputs.encodes:
            if group.request_id not in failing and encode.num_layers is None and encode.pooling is None:
                for i, value in enumerate(encoded(group)):
                    self.cache.write(encode.cross_block_table, i, value)

    def end_encodes(self, outputs: SchedulerOutputs, failing: Collection[str] = ()) -> None:
        """End the requests that only encode. failing: as for `encode`."""
        for group, encode, _ in outputs.encodes:
            if group.pooling is not None and group.request_id not in failing and encode.num_layers is None:
                group.end_encode(np.zeros(1, np.float32))
                self.num_embedded += 1

    def check_step(self, outputs: SchedulerOutputs, running_before: list[SequenceGroup]) -> None:
        running = self.scheduler.running
        assert sum(group.max_num_seqs for group in running) <= self.config.max_num_seqs
        prefills = [metadata for metadata in outputs.step.decodes if metadata.is_prefill]
        olds = [metadata for metadata in outputs.step.decodes if not metadata.is_prefill]
        decoder_tokens = sum(data.num_tokens for metadata in prefills for data in metadata.seq_data.values())
        assert decoder_tokens + sum(len(m.seq_data) for m in olds) <= self.config.max_decoder_tokens
        encodes = outputs.step.encodes
        computed = [each for each in encodes if each.num_layers is None or not outputs.is_urgent]  # not the paused one
        assert sum(encode.inputs.num_tokens for encode in computed) <= self.config.max_encoder_tokens
        # A group that returns from the host may share the table of an urgent one that has come meanwhile.
        assert {metadata.encode_id for metadata in olds} <= {None, *(encode.encode_id for encode in encodes)}
        self.check_slices(outputs)
        for group, encode, _ in outputs.encodes:
            if encode.num_layers is not None or group.pooling is not None:
                assert group not in outputs.groups
                assert bool(encode.cross_block_table) <= (group.pooling is None)
                continue
            metadata = outputs.step.decodes[outputs.groups.index(group)]
            assert metadata.is_prefill
            assert metadata.encode_id == encode.encode_id
        complete = sum(encode.num_layers is None and encode.pooling is None for encode in encodes)
        self.encoder_runs += complete
        self.encoder_hits += len(prefills) - complete
        assert [group.request_id for group in outputs.groups] == [m.request_id for m in outputs.step.decodes]
        encoding = [] if self.scheduler.sliced is None else [self.scheduler.sliced.group]
        encoding += [group for group, encode, _ in outputs.encodes if encode.pooling is not None]
        paused = [group for group in running if group not in outputs.groups and group not in encoding]
        assert {*outputs.groups, *encoding, *paused} == set(running)
        assert not paused or (self.slices and outputs.is_urgent and not any(group.is_urgent for group in paused))
        assert not {*outputs.groups} & {*encoding}
        for urgent in (True, False):  # none overtakes another that is as urgent
            alike = [group for group in running + self.scheduler.queue if group.is_urgent == urgent]
            assert all(a.arrival < b.arrival for a, b in pairwise(alike))
        gone, come = set(running_before) - set(running), set(running) - set(running_before)
        assert not (gone and come)
        for group in gone:
            swapped = group.unfinished_seqs[0].status is SequenceStatus.SWAPPED
            self.preempted_by_swap += swapped
            self.preempted_by_recompute += not swapped
            assert swapped == (group.request_id in self.manager.cross_block_tables)
        assert bool(outputs.step.moves.swap_out) <= bool(gone)
        for group in running:
            assert {seq.status for seq in group.unfinished_seqs} == {SequenceStatus.RUNNING}
        for group in self.scheduler.queue:
            assert {seq.status for seq in group.unfinished_seqs} <= {SequenceStatus.WAITING, SequenceStatus.SWAPPED}
        assert outputs.step.decodes or outputs.step.encodes or not self.scheduler.has_unfinished, (
            "no group makes progress"
        )
        if running_before and come:  # the watermark
            growing = [group for group in running_before if group.pooling is None]
            assert self.manager.num_free_device_blocks >= sum(len(group.unfinished_seqs) for group in growing)

    def check_slices(self, outputs: SchedulerOutputs) -> None:
        """One encode at a time takes several steps, beside requests that decode or soon after urgent ones.

        It goes on in each step, or, beside urgent requests, in none.
        """
        before, self.layers = self.layers, {}
        self.since_urgent = 0 if outputs.is_urgent else self.since_urgent + 1
        sliced = [encode for encode in outputs.step.encodes if encode.num_layers is not None]
        assert len(sliced) <= 1
        for encode in sliced:
            assert outputs.groups or self.since_urgent <= URGENT_STEPS
            assert encode.num_layers is not None
            further = encode.num_layers - before.get(encode.encode_id, 0)
            assert (further == 0) if outputs.is_urgent else (further > 0)
            assert encode.num_layers < NUM_LAYERS
            self.layers[encode.encode_id] = encode.num_layers
        self.num_sliced += sum(
            encode.encode_id in before and encode.num_layers is None for encode in outputs.step.encodes
        )

    def run(self, index: int, outputs: SchedulerOutputs) -> dict[int, list[int]]:
        """The model's step for one group: tokens drawn for each of its sequences."""
        metadata = outputs.step.decodes[index]
        num_encoder_tokens = metadata.num_encoder_tokens
        drawn = {}
        for seq_id, data in metadata.seq_data.items():
            tokens = data.prompt_token_ids + data.output_token_ids
            table = metadata.block_tables[seq_id]
            for i in range(0 if metadata.is_prefill else len(tokens) - 1, len(tokens)):
                self.cache.write(table, i, tokens[i])
            cross = self.cache.read(metadata.cross_block_table, num_encoder_tokens)
            assert cross == encoded(outputs.waiting[index].group)
            context = self.cache.read(table, len(tokens))
            samples = range(data.sample_index, data.sample_index + metadata.num_samples)
            drawn[seq_id] = [predict(context, sample) for sample in samples]
        return drawn

    def append(self, group: SequenceGroup, drawn: dict[int, list[int]]) -> None:
        for parent in group.unfinished_seqs:
            tokens = drawn[parent.seq_id]
            seqs = [parent]
            for _ in tokens[1:]:
                child = fork(parent)
                child.sample_index = len(seqs)
                self.manager.fork(parent, child)
                seqs.append(child)
                group.seqs.append(child)
            for seq, token in zip(seqs, tokens, strict=True):
                seq.append_token(SampledToken(token, 0.0, None))
                if ends(token):
                    seq.status = SequenceStatus.STOPPED
                elif len(seq.output_token_ids) == group.sampling_params.max_tokens:
                    seq.status = SequenceStatus.LENGTH

    def finish(self, limit: int = 2000) -> None:
        for _ in range(limit):
            if not self.scheduler.has_unfinished:
                break
            self.step()
        assert not self.scheduler.has_unfinished
        self.check_empty()
        for group in self.groups.values():
            if all(seq.status is not SequenceStatus.ABORTED for seq in group.seqs):
                assert [seq.output_token_ids for seq in group.seqs] == expected(group)

    def check_empty(self) -> None:
        manager = self.manager
        assert self.scheduler.running == self.scheduler.queue == []
        assert manager.block_tables == manager.cross_block_tables == {}
        assert manager.num_free_device_blocks == manager.num_device_blocks
        assert manager.num_free_host_blocks == manager.num_host_blocks


def predict(context: list[object], sample: int) -> int:
    return hash((tuple(context), sample)) % 1000


def ends(token: int) -> bool:
    return token % 25 == 0


def expected(group: SequenceGroup) -> list[list[int]]:
    if group.pooling is not None:
        return [[]]
    outputs = []
    for sample in range(group.sampling_params.n):
        output: list[int] = []
        while not (output and ends(output[-1])) and len(output) < (group.sampling_params.max_tokens or 0):
            output.append(predict(group.seqs[0].prompt_token_ids + output, sample))
        outputs.append(output)
    return outputs
