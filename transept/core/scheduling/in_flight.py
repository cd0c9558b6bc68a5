"""SchedulerOutputs: a step, from the scheduler's decision until the engine core has appended its tokens."""

from __future__ import annotations

from collections import deque
from typing import Generic, NamedTuple, TypeVar

from transept.core.scheduling.sequence_group import SequenceGroup
from transept.core.scheduling.step import Encode, SequenceGroupMetadata, StepInput, StepOutput

PartT = TypeVar("PartT", SequenceGroupMetadata, Encode)


class Participant(NamedTuple, Generic[PartT]):
    """A request in a step, and its part of the step. num_restarts: the group's when the step was scheduled."""

    group: SequenceGroup
    part: PartT
    num_restarts: int

    @property
    def waits(self) -> bool:
        """True if the request still waits for the step: it has neither ended nor restarted since."""
        return not self.group.finished and self.group.num_restarts == self.num_restarts


class SchedulerOutputs:
    """A scheduled step, and the requests in it.

    step: the executor's input. waiting: requests whose tokens have not been appended, in the order of step.decodes.
    encodes: the requests for which step.encodes were scheduled, in the same order. encoder_work: of these encodes, in
    layers times tokens.
    number: see Executor.issue. error: why the executor could not take the step. output: its output, if it was collected
    before its turn.
    num_seqs, num_draft_tokens, num_model_tokens, only_decodes: set by Drafting. num_model_tokens: of these, the draft
    model's. only_decodes: True if nothing is encoded or prefilled.
    """

    def __init__(self) -> None:
        self.step = StepInput()
        self.waiting: deque[Participant[SequenceGroupMetadata]] = deque()
        self.encodes: list[Participant[Encode]] = []
        self.encoder_work = 0
        self.number = 0
        self.error: Exception | None = None
        self.output: StepOutput | None = None
        self.num_seqs = self.num_draft_tokens = self.num_model_tokens = 0
        self.only_decodes = False

    def add_decode(self, group: SequenceGroup, decode: SequenceGroupMetadata) -> None:
        """Add a request to the decoder's part of the step."""
        self.step.decodes.append(decode)
        self.waiting.append(Participant(group, decode, group.num_restarts))

    def add_encode(self, group: SequenceGroup, encode: Encode, num_layers: int) -> None:
        """Add an encode, of which the step computes `num_layers` layers."""
        self.step.encodes.append(encode)
        self.encodes.append(Participant(group, encode, group.num_restarts))
        self.encoder_work += num_layers * encode.inputs.num_tokens

    @property
    def is_urgent(self) -> bool:
        """True if an urgent request takes part."""
        return any(each.group.is_urgent for each in self.waiting)

    @property
    def groups(self) -> list[SequenceGroup]:
        """The requests that still wait for this step's tokens."""
        return [each.group for each in self.waiting if each.waits]

    @property
    def is_awaited(self) -> bool:
        """True if a request still waits for a result of this step."""
        return any(each.waits for each in self.waiting) or any(each.waits for each in self.encodes)
