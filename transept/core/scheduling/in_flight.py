"""Steps that the executor was given and whose tokens are not appended yet. Kept by the engine core."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from transept.core.scheduling.scheduler import SchedulerOutputs
from transept.core.scheduling.sequence_group import SequenceGroup
from transept.core.scheduling.step import SequenceGroupMetadata, StepOutput


class Participant(NamedTuple):
    """A request in a step. num_restarts: the group's when the step was issued."""

    group: SequenceGroup
    metadata: SequenceGroupMetadata
    num_restarts: int

    @property
    def waits(self) -> bool:
        """Whether the request still waits for the step's tokens: it has not ended or started anew since."""
        return not self.group.finished and self.group.num_restarts == self.num_restarts


class StepInFlight:
    """A step that the executor was given.

    waiting: requests whose tokens have not been appended. encodes: each with the request that it was scheduled for.
    error: why the executor could not take it. output: its output, if it was collected before its turn.
    """

    def __init__(self, scheduled: SchedulerOutputs) -> None:
        self.waiting = deque(
            Participant(group, metadata, group.num_restarts)
            for group, metadata in zip(scheduled.groups, scheduled.step.decodes, strict=True)
        )
        self.encodes = [*zip(scheduled.encoding, scheduled.step.encodes, strict=True)]
        self.number = 0
        self.error: Exception | None = None
        self.output: StepOutput | None = None

    @property
    def groups(self) -> list[SequenceGroup]:
        """The requests that still wait for this step's tokens."""
        return [each.group for each in self.waiting if each.waits]
