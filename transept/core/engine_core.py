"""EngineCore: the step loop. A step is a transaction: an exception while processing a request fails only that request.

One thread drives it at a time, on behalf of all callers: see `transept.core.jobs`. It knows the model only through the
executor. No torch here.
"""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import replace
from itertools import count
from operator import attrgetter

from transept.core.execution.executor import Executor
from transept.core.outputs import RequestOutput
from transept.core.request.inputs import PreparedRequest
from transept.core.scheduling.beam_search import BeamSearch
from transept.core.scheduling.drafting import drop_drafts
from transept.core.scheduling.failed_frames import forget_frames
from transept.core.scheduling.in_flight import SchedulerOutputs
from transept.core.scheduling.look_ahead import can_look_ahead, pending
from transept.core.scheduling.scheduler import Scheduler
from transept.core.scheduling.sequence import SampledToken, Sequence, SequenceStatus
from transept.core.scheduling.sequence_group import SequenceGroup
from transept.core.scheduling.statistics import StepStatistics
from transept.core.scheduling.step import StepInput, StepOutput
from transept.core.scheduling.stopping import StopChecker, no_token
from transept.errors import RequestFailedError, TranseptError

_LOGPROB = attrgetter("logprob")
URGENT = 1 << 62  # subtracted from an urgent request's arrival; larger than any arrival


class EngineCore:
    """Runs requests step by step, and records their tokens and errors.

    executor: computes steps. scheduler: decides them. stop_checker: ends sequences and updates their texts.
    """

    def __init__(self, executor: Executor, scheduler: Scheduler, stop_checker: StopChecker) -> None:
        self.executor = executor
        self.scheduler = scheduler
        self.stop_checker = stop_checker
        self._seq_ids, self._arrivals = count(), count()
        self.in_flight: deque[SchedulerOutputs] = deque()  # steps issued, whose tokens are not appended yet
        self.took_part: deque[SequenceGroup] = deque()  # groups of past steps; the driver removes them
        self.statistics = StepStatistics()

    @property
    def has_unfinished(self) -> bool:
        """True if a request waits or runs, or is still in `took_part`."""
        return self.scheduler.has_unfinished or bool(self.took_part)

    @property
    def num_waiting(self) -> int:
        """Number of queued requests, including preempted ones."""
        return len(self.scheduler.queue)

    def add(self, request_id: str, request: PreparedRequest, urgent: bool = False) -> None:
        """Queue a request. An urgent one goes before all that are not urgent.

        Raises CapacityError if it could never fit, ParameterError if its id is in use.
        """
        most_seqs, continues_word = self.scheduler.config.max_num_seqs, self.stop_checker.continues_word
        arrival = next(self._arrivals) - (URGENT if urgent else 0)
        group = SequenceGroup(request_id, request, self._seq_ids, arrival, most_seqs, continues_word)
        self.scheduler.add_seq_group(group)

    def abort(self, request_id: str) -> None:
        """Drop a request at any time and free its memory; do nothing if it is finished or unknown."""
        self.scheduler.abort_seq_group(request_id)
        if not self.scheduler.has_unfinished:
            self._drop_steps()

    def keeps_thread(self, keeps: bool) -> None:
        """Allow encodes that take several steps, if the calling thread keeps driving the core.

        An encode that has begun in one thread cannot continue in another. keeps: False if another thread may drive
        next; then every encode takes one step.
        """
        self.scheduler.slices_encoders = keeps
        if not keeps:
            self.executor.leave_thread()

    def step(self) -> None:
        """Schedule and issue a step if none is in flight, collect the oldest one, and append its tokens.

        Adds the groups that took part to `took_part`. Does nothing if no request is unfinished.

        On an asynchronous device, the next step is issued before this one is collected (`look_ahead`). In a pipeline,
        one step for each stage is in flight, of different requests: a request takes part in no other step until its
        tokens are appended. All stages compute steps in the order of issue. So blocks that are freed meanwhile can be
        reallocated at once: their new owner writes them in a later step.

        Invariant: a group gets all tokens of the step, or it has failed and holds no blocks. If the failed group's
        encode would have filled a shared cross table, the other groups that share it restart. All other groups get the
        tokens that they would have had without the failure.

        An interruption, such as KeyboardInterrupt, at any point fails at most the request whose tokens were being
        appended. All other requests restart, and keep their tokens.
        """
        if not self.scheduler.has_unfinished:
            return
        begin = time.perf_counter()
        try:
            if not self.in_flight:
                self._issue(self.scheduler.schedule(num_steps=self.executor.capacity.num_stages))
            step = self.in_flight[0]
            if self.executor.capacity.num_stages > 1:
                self._fill_pipeline()
            elif self.executor.capacity.asynchronous and step.error is None:
                self._issue_ahead(step)
            output = self._collect(step)
            self._append_all(step, output)
            self.in_flight.popleft()
            if not any(ahead.is_awaited for ahead in self.in_flight):
                self._drop_steps()
            self.scheduler.free_finished_seq_groups()
            seconds = time.perf_counter() - begin
            self.statistics.ended(seconds, len(output.sampled), len(output.embeddings))
            self.scheduler.drafting.ended(step, seconds)
            self.scheduler.slices.ended(step.encoder_work, bool(output.sampled), seconds)
            if output.interruption is not None:
                raise output.interruption
        except BaseException:
            self.in_flight.clear()
            self.scheduler.restart_all()
            self.scheduler.adapters.reset()
            raise

    def output(self, group: SequenceGroup) -> RequestOutput:
        """Return a snapshot of a group. If its text cannot be detokenized, the group fails."""
        try:
            for seq in group.unfinished_seqs:
                self.stop_checker.update_text(seq, group.sampling_params)
        except Exception as error:
            self._fail(group, error)
        return RequestOutput.from_seq_group(group)

    def _drop_steps(self) -> None:
        """Drop all steps in flight, and the cross tables that their encodes write. No request waits for these steps."""
        for step in self.in_flight:
            for each in step.encodes:
                self.scheduler.forget_encoded(each.group, each.part.cross_block_table)
        self.in_flight.clear()

    def _issue(self, step: SchedulerOutputs) -> None:
        """Issue a step to the executor."""
        self.in_flight.append(step)
        try:
            step.number = self.executor.issue(step.step)
            self.statistics.num_encoder_tokens += sum(
                each.inputs.num_tokens for each in step.step.encodes if each.num_layers is None
            )
        except Exception as error:
            step.error = error
            if step.step.moves.swap_out:
                self.scheduler.restart_swapped()

    def _fill_pipeline(self) -> None:
        """Issue steps until one for each stage is in flight. A request is in only one of them."""
        num_stages = self.executor.capacity.num_stages
        while len(self.in_flight) < num_stages and all(step.error is None for step in self.in_flight):
            under_way = {group for step in self.in_flight for group in step.groups}
            scheduled = self.scheduler.schedule(under_way, num_stages)
            if scheduled.step.is_empty:
                return
            self._issue(scheduled)

    def _issue_ahead(self, step: SchedulerOutputs) -> None:
        """Issue the step after the one in flight, if the scheduler can decide it without that one's tokens."""
        groups = step.groups
        if len(self.in_flight) == 1 and can_look_ahead(groups, self.scheduler):
            with pending(groups):
                self._issue(self.scheduler.schedule())

    def _collect(self, step: SchedulerOutputs) -> StepOutput:
        """Wait for a step's output. If the executor fails, as when a worker dies, all requests of the step fail."""
        try:
            if step.error is not None:
                raise step.error
            output = step.output or self.executor.collect(step.number)
            return self._computed_in_halves(step) if output.whole_step_failed else output
        except Exception as error:
            return StepOutput(
                failures={each.group.request_id: error for each in step.waiting},
                failed_encodes={each.part.encode_id: error for each in step.encodes},
            )

    def _computed_in_halves(self, step: SchedulerOutputs) -> StepOutput:
        """Bisect a failed step to isolate the failing requests. Returns the combined output of its parts.

        Collects all other steps first, so that no other is in flight. Requests of those steps restart if they read a
        cross table that the failed step did not write.
        """
        for other in self.in_flight:
            if other is not step and other.error is None and other.output is None:
                other.output = self.executor.collect(other.number)
        waiting, encodes = step.groups, []
        drop_drafts(waiting)
        for each in step.encodes:
            again = each.waits  # otherwise, its blocks may have been reallocated
            self.scheduler.forget_encoded(each.group, each.part.cross_block_table, waiting if again else ())
            encodes += [each.part] if again else []
        output = StepOutput()
        batches = [StepInput([], [each.part for each in step.waiting if each.waits]), StepInput(encodes)]
        while batches:
            batch = batches.pop()
            decodes = [each for each in batch.decodes if each.encode_id not in output.failed_encodes]
            batch = StepInput(batch.encodes, decodes)
            if batch.is_empty:
                continue
            part = self.executor.collect(self.executor.issue(batch))
            if part.whole_step_failed:  # then either its encodes or its decodes are empty
                first, second = len(batch.encodes) // 2, len(batch.decodes) // 2
                batches.append(StepInput(batch.encodes[first:], batch.decodes[second:]))
                batches.append(StepInput(batch.encodes[:first], batch.decodes[:second]))
                continue
            output.sampled.update(part.sampled)
            output.probes.update(part.probes)
            output.embeddings.update(part.embeddings)
            output.failures.update(part.failures)
            output.failed_encodes.update(part.failed_encodes)
            if part.interruption is not None:
                output = replace(output, interruption=part.interruption)
        return output

    def _append_all(self, step: SchedulerOutputs, output: StepOutput) -> None:
        """Append every group's tokens of a step, or fail the group."""
        for each in step.encodes:
            if (error := output.failed_encodes.get(each.part.encode_id)) is not None:
                self.scheduler.forget_encoded(each.group, each.part.cross_block_table)
                if each.waits:
                    self.took_part.append(each.group)
                    self._fail(each.group, error)
            elif each.waits and each.part.encode_id in output.embeddings:
                self.took_part.append(each.group)
                try:
                    each.group.end_encode(output.embeddings[each.part.encode_id])
                except RequestFailedError as failure:
                    self._fail(each.group, failure)
        while step.waiting:
            group = step.waiting[0].group
            if step.waiting[0].waits:
                self.took_part.append(group)
                try:
                    if group.request_id in output.failures:
                        raise output.failures[group.request_id]
                    self._append(group, output)
                except BaseException as error:
                    self._fail(group, error)
                    if not isinstance(error, Exception):
                        raise
            step.waiting.popleft()

    def _append(self, group: SequenceGroup, output: StepOutput) -> None:
        """Append a group's tokens, and set its probe's result. Raises RequestFailedError if the logits were NaN."""
        group.probe_result = output.probes.get(group.request_id, group.probe_result)
        for seq in group.unfinished_seqs:
            if any(map(math.isnan, map(_LOGPROB, output.sampled[seq.seq_id][: group.num_samples]))):
                raise no_token(group.sampling_params)
        if group.beam_search is not None:
            self._advance_beams(group, group.beam_search, output.sampled)
            return
        for seq in group.unfinished_seqs:
            append = self._append_draft if seq.draft_token_ids else self._append_to
            append(group, seq, output.sampled[seq.seq_id])
        if time.monotonic() > group.deadline:
            for seq in group.unfinished_seqs:
                seq.status = SequenceStatus.LENGTH
                self.stop_checker.complete_text(seq, group.sampling_params)

    def _append_to(self, group: SequenceGroup, seq: Sequence, tokens: list[SampledToken]) -> None:
        """Append a sequence's new token. With several tokens, the request's further samples fork from it first."""
        owners = [seq]
        for index in range(1, len(tokens)):
            child = seq.fork(next(self._seq_ids), index)
            group.seqs.append(child)  # first, so that its blocks are freed after any exception
            self.scheduler.block_manager.fork(seq, child)
            owners.append(child)
        for owner, token in zip(owners, tokens, strict=True):
            owner.append_token(token)
            self.stop_checker.check(owner, group.sampling_params)

    def _append_draft(self, group: SequenceGroup, seq: Sequence, tokens: list[SampledToken]) -> None:
        """Append the accepted tokens of a sequence's draft and the one after them, up to the sequence's end."""
        num_before, num_drafted = len(seq.output_token_ids), self.scheduler.drafting.judged(seq, len(tokens))
        seq.draft_token_ids.clear()
        for token in tokens:
            if math.isnan(token.logprob):
                raise no_token(group.sampling_params)
            seq.append_token(token)
            self.stop_checker.check(seq, group.sampling_params)
            if seq.finished:
                break
        else:
            self.scheduler.block_manager.drop_draft_slots(seq)
        self.statistics.drafted(num_drafted, len(seq.output_token_ids) - num_before - 1)

    def _advance_beams(self, group: SequenceGroup, search: BeamSearch, sampled: dict[int, list[SampledToken]]) -> None:
        """Append the beams' new tokens: some beams fork, some are dropped, and all end when the search is done.

        A beam with several continuations keeps its blocks for the best one; the others share them, copy-on-write.
        Dropped beams are freed first, so that the group never holds more blocks than at its admission.
        """
        params = group.sampling_params
        late = (SequenceStatus.LENGTH, None) if time.monotonic() > group.deadline else None
        continuations = search.advance(
            group.seqs, sampled, lambda beam, token: self.stop_checker.end_of_beam(beam, token, params) or late
        )
        kept = {continuation.parent.seq_id for continuation in continuations}
        for seq in group.seqs:
            if seq.seq_id not in kept:
                self.scheduler.block_manager.free(seq)
        beams: list[Sequence] = []
        for continuation in continuations:
            beam = parent = continuation.parent
            if beam in beams:
                beam = parent.fork(next(self._seq_ids), 0)
                group.seqs.append(beam)
                self.scheduler.block_manager.fork(parent, beam)
            beams.append(beam)
        for beam, continuation in zip(beams, continuations, strict=True):
            beam.append_token(continuation.token)
        group.seqs = beams or search.hypotheses[: params.num_return_sequences]
        for seq in group.seqs:
            if seq.finished:
                self.stop_checker.complete_text(seq, params)

    def _fail(self, group: SequenceGroup, error: BaseException) -> None:
        """Fail a group: set its error, and free its blocks."""
        group.error = error if isinstance(error, TranseptError) else RequestFailedError.of(error)
        forget_frames(error)
        for seq in group.unfinished_seqs:
            seq.status = SequenceStatus.FAILED
        self.scheduler.abort_seq_group(group.request_id)
