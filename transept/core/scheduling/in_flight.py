"""Steps from when the scheduler has decided them until the engine core has appended their tokens."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from transept.core.scheduling.sequence_group import SequenceGroup
from transept.core.scheduling.step import Encode, SequenceGroupMetadata, StepInput, StepOutput

PartT = TypeVar("PartT", SequenceGroupMetadata, Encode)


@dataclass
class SchedulerOutputs:
    """One step, and the requests in it.

    groups: aligned with step.decodes. encoding: the requests that step.encodes were scheduled for, aligned with these.
    encoder_work: of the step's encoders, in layers times tokens.
    """

    groups: list[SequenceGroup] = field(default_factory=list)
    encoding: list[SequenceGroup] = field(default_factory=list)
    step: StepInput = field(default_factory=StepInput)
    encoder_work: int = 0


class Participant(NamedTuple, Generic[PartT]):
    """A request in a step, and what is computed for it. num_restarts: the group's when the step was issued."""

    group: SequenceGroup
    part: PartT
    num_restarts: int

    @property
    def waits(self) -> bool:
        """True if the request still waits for the step: it has not ended or started anew since."""
        return not self.group.finished and self.group.num_restarts == self.num_restarts


class StepInFlight:
    """A step that the executor was given.

    waiting: requests whose tokens have not been appended. encodes: those that the step's encodes were scheduled for.
    error: why the executor could not take it. output: its output, if it was collected before its turn.
    encoder_work: see SchedulerOutputs.
    """

    def __init__(self, scheduled: SchedulerOutputs) -> None:
        step = scheduled.step
        self.waiting = deque(
            Participant(group, decode, group.num_restarts)
            for group, decode in zip(scheduled.groups, step.decodes, strict=True)
        )
        self.encodes = [
            Participant(group, encode, group.num_restarts)
            for group, encode in zip(scheduled.encoding, step.encodes, strict=True)
        ]
        self.encoder_work = scheduled.encoder_work
        self.number = 0
        self.error: Exception | None = None
        self.output: StepOutput | None = None

    @property
    def groups(self) -> list[SequenceGroup]:
        """The requests that still wait for this step's tokens."""
        return [each.group for each in self.waiting if each.waits]

    @property
    def is_awaited(self) -> bool:
        """True if a request still waits for anything of this step."""
        return any(each.waits for each in self.waiting) or any(each.waits for each in self.encodes)
