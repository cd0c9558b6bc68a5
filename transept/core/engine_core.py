"""EngineCore: the step loop. A step is a transaction: whatever raises while one request is worked on ends that request.

Driven by one thread at a time: `transept.core.jobs` calls it for everybody. It knows the
model only through the executor. No torch here.
"""

from __future__ import annotations

import math
import time
import traceback
from collections import deque
from dataclasses import replace
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from itertools import count
from types import FrameType

from transept.core.execution.executor import Executor
from transept.core.outputs import RequestOutput
from transept.core.request.inputs import PreparedRequest
from transept.core.scheduling.beam_search import BeamSearch
from transept.core.scheduling.in_flight import SchedulerOutputs, StepInFlight
from transept.core.scheduling.look_ahead import can_look_ahead, pending
from transept.core.scheduling.scheduler import Scheduler
from transept.core.scheduling.sequence import SampledToken, Sequence, SequenceStatus
from transept.core.scheduling.sequence_group import SequenceGroup
from transept.core.scheduling.statistics import StepStatistics
from transept.core.scheduling.step import StepInput, StepOutput
from transept.core.scheduling.stopping import StopChecker
from transept.errors import RequestFailedError, TranseptError

NO_NUMBERS = (
    "no token can be chosen: the logits are NaN. Either weights or input hold NaN or infinities, or the model computes "
    "them, as it may in float16, which ends at 65,504; or options and logits processors forbid every token"
)

SUSPENDABLE = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR


class EngineCore:
    """Requests in, tokens and failures out.

    executor: computes the steps. scheduler: decides them. stop_checker: ends sequences and keeps their texts.
    """

    def __init__(self, executor: Executor, scheduler: Scheduler, stop_checker: StopChecker) -> None:
        self.executor = executor
        self.scheduler = scheduler
        self.stop_checker = stop_checker
        self._seq_ids, self._arrivals = count(), count()
        self.in_flight: deque[StepInFlight] = deque()  # issued and not appended
        self.took_part: deque[SequenceGroup] = deque()  # in steps; whoever drives the core takes them out
        self.statistics = StepStatistics()

    @property
    def has_unfinished(self) -> bool:
        """Whether any request still waits or runs, or has not been taken out of `took_part`."""
        return self.scheduler.has_unfinished or bool(self.took_part)

    @property
    def num_waiting(self) -> int:
        """Requests that wait for room, those that were preempted among them."""
        return len(self.scheduler.queue)

    def add(self, request_id: str, request: PreparedRequest) -> None:
        """Queue a request. Raises CapacityError when it could never fit, ParameterError when its id is in use."""
        self.scheduler.add_seq_group(SequenceGroup.of(request_id, request, self._seq_ids, next(self._arrivals)))

    def abort(self, request_id: str) -> None:
        """Drop a request at any moment and free its memory; nothing happens if it is finished or unknown."""
        self.scheduler.abort_seq_group(request_id)
        if not self.scheduler.has_unfinished:
            self._drop_steps()

    def keeps_thread(self, keeps: bool) -> None:
        """Note whether the calling thread will step the core for good. Else encoders take one step.

        An encode that has begun in one thread cannot go on in another.
        """
        self.scheduler.slices_encoders = keeps
        if not keeps:
            self.executor.leave_thread()

    def step(self) -> None:
        """Collect one step's tokens and append them, if any request is unfinished.

        The groups that took part are added to `took_part`.

        Where the device computes beside the host, the next step is issued before this one is collected (`look_ahead`).
        Where the executor is a pipeline, as many steps are under way as it has stages, of different requests: a request
        waits for its tokens before it takes part in another. Stages compute steps in the order of their issue, so that
        blocks which are given back meanwhile can be given away: whoever gets them writes them later.

        Invariant: a group gets its token in full, or it has failed and holds nothing; groups that share its encoder's
        output without its being there start anew. Everybody else gets the tokens that they would have had.

        An interruption (KeyboardInterrupt, say), wherever it strikes, costs no request but the one whose tokens were
        being appended. All others are computed anew, with the tokens that they have.
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
            self.statistics.ended(seconds, len(output.sampled))
            self.scheduler.slices.ended(step.encoder_work, bool(output.sampled), seconds)
            if output.interruption is not None:
                raise output.interruption
        except BaseException:
            self.in_flight.clear()
            self.scheduler.restart_all()
            raise

    def output(self, group: SequenceGroup) -> RequestOutput:
        """A snapshot of a group. One whose text cannot be made fails."""
        try:
            for seq in group.unfinished_seqs:
                self.stop_checker.update_text(seq, group.sampling_params)
        except Exception as error:
            self._fail(group, error)
        return RequestOutput.from_seq_group(group)

    def _drop_steps(self) -> None:
        """Collect nothing of what is under way, since nobody waits for it, nor trust what its encoders write."""
        for step in self.in_flight:
            for each in step.encodes:
                self.scheduler.forget_encoded(each.group, each.part.cross_block_table)
        self.in_flight.clear()

    def _issue(self, scheduled: SchedulerOutputs) -> None:
        """Give the executor a step."""
        step = StepInFlight(scheduled)
        self.in_flight.append(step)
        try:
            step.number = self.executor.issue(scheduled.step)
            self.statistics.num_encoder_tokens += sum(
                each.inputs.num_tokens for each in scheduled.step.encodes if each.num_layers is None
            )
        except Exception as error:
            step.error = error
            if scheduled.step.moves.swap_out:
                self.scheduler.restart_swapped()

    def _fill_pipeline(self) -> None:
        """Issue steps of requests that are in none, until there is one for each stage."""
        num_stages = self.executor.capacity.num_stages
        while len(self.in_flight) < num_stages and all(step.error is None for step in self.in_flight):
            under_way = {group for step in self.in_flight for group in step.groups}
            scheduled = self.scheduler.schedule(under_way, num_stages)
            if scheduled.step.is_empty:
                return
            self._issue(scheduled)

    def _issue_ahead(self, step: StepInFlight) -> None:
        """Issue the step after one that is under way, if it can be known."""
        groups = step.groups
        if len(self.in_flight) == 1 and can_look_ahead(groups, self.scheduler):
            with pending(groups):
                self._issue(self.scheduler.schedule())

    def _collect(self, step: StepInFlight) -> StepOutput:
        """A step's output. Where the executor failed, as it does when a worker dies, everybody in the step did."""
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

    def _computed_in_halves(self, step: StepInFlight) -> StepOutput:
        """What comes of a step that failed, when it is computed again in halves until what fails stands alone.

        All other steps are collected first, so that nothing else is under way. Those of their requests that read what
        an encoder was to write in this step start anew.
        """
        for other in self.in_flight:
            if other is not step and other.error is None and other.output is None:
                other.output = self.executor.collect(other.number)
        waiting, encodes = step.groups, []
        for each in step.encodes:
            again = each.waits  # else its blocks may be another's by now
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
            if part.whole_step_failed:
                batches += _halves(batch)
                continue
            output.sampled.update(part.sampled)
            output.probes.update(part.probes)
            output.failures.update(part.failures)
            output.failed_encodes.update(part.failed_encodes)
            if part.interruption is not None:
                output = replace(output, interruption=part.interruption)
        return output

    def _append_all(self, step: StepInFlight, output: StepOutput) -> None:
        """Give every group of a step its tokens, or its failure."""
        for each in step.encodes:
            if (error := output.failed_encodes.get(each.part.encode_id)) is not None:
                self.scheduler.forget_encoded(each.group, each.part.cross_block_table)
                if each.waits:
                    self.took_part.append(each.group)
                    self._fail(each.group, error)
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
        """Give a group its tokens, and what its prompt probe read. RequestFailedError: tokens were drawn of NaN."""
        group.probe_result = output.probes.get(group.request_id, group.probe_result)
        for seq in group.unfinished_seqs:
            if any(math.isnan(token.logprob) for token in output.sampled[seq.seq_id]):
                raise RequestFailedError(NO_NUMBERS)
        if group.beam_search is not None:
            self._advance_beams(group, group.beam_search, output.sampled)
            return
        for seq in group.unfinished_seqs:
            self._append_to(group, seq, output.sampled[seq.seq_id])

    def _append_to(self, group: SequenceGroup, seq: Sequence, tokens: list[SampledToken]) -> None:
        """Give a sequence its new token; a request's further samples fork from it first."""
        owners = [seq]
        for index in range(1, len(tokens)):
            child = seq.fork(next(self._seq_ids), index)
            group.seqs.append(child)  # first, so that its blocks are found whatever happens
            self.scheduler.fork_seq(seq, child)
            owners.append(child)
        for owner, token in zip(owners, tokens, strict=True):
            owner.append_token(token)
            self.stop_checker.check(owner, group.sampling_params)

    def _advance_beams(self, group: SequenceGroup, search: BeamSearch, sampled: dict[int, list[SampledToken]]) -> None:
        """Give a request's beams their new tokens: some fork, some are dropped, all end with the search.

        A beam that goes on more than once keeps its blocks for the best continuation; the others share them until
        they write. Dropped beams are freed first, so that the group never holds more than it was admitted with.
        """
        params = group.sampling_params
        going_on = search.advance(
            group.seqs, sampled, lambda token, num_tokens: self.stop_checker.end(token, num_tokens, params)
        )
        kept = {continuation.parent.seq_id for continuation in going_on}
        for seq in group.seqs:
            if seq.seq_id not in kept:
                self.scheduler.free_seq(seq)
        beams: list[Sequence] = []
        for continuation in going_on:
            beam = parent = continuation.parent
            if beam in beams:
                beam = parent.fork(next(self._seq_ids), 0)
                group.seqs.append(beam)
                self.scheduler.fork_seq(parent, beam)
            beams.append(beam)
        for beam, continuation in zip(beams, going_on, strict=True):
            beam.append_token(continuation.token)
        group.seqs = beams or search.hypotheses[: params.num_return_sequences]
        for seq in group.seqs:
            if seq.finished:
                self.stop_checker.update_text(seq, params)

    def _fail(self, group: SequenceGroup, error: BaseException) -> None:
        """End a group with an error."""
        group.error = error if isinstance(error, TranseptError) else RequestFailedError.of(error)
        _forget_frames(error)
        for seq in group.unfinished_seqs:
            seq.status = SequenceStatus.FAILED
        self.scheduler.abort_seq_group(group.request_id)


def _forget_frames(error: BaseException | None) -> None:
    """Let go of what the functions had at hand that an error came through: tensors, and by `self` the whole model.

    Users keep errors. Which functions they were, and where, stays.
    """
    while error is not None:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            _clear(frame)
        error = error.__cause__


def _clear(frame: FrameType | None) -> None:
    """Clear a frame and those that called it, up to one that runs or may go on: to clear a generator closes it."""
    while frame is not None and not frame.f_code.co_flags & SUSPENDABLE:
        try:
            frame.clear()
        except RuntimeError:  # it runs
            return
        frame = frame.f_back


def _halves(batch: StepInput) -> list[StepInput]:
    """The second half and the first one of a step that has only encodes, or only decodes."""
    first, second = len(batch.encodes) // 2, len(batch.decodes) // 2
    return [
        StepInput(batch.encodes[first:], batch.decodes[second:]),
        StepInput(batch.encodes[:first], batch.decodes[:second]),
    ]
