"""Schedule a step while the previous one is still being computed, so that a GPU never waits for its next step.

The scheduling side knows everything of a step in progress except its tokens. It appends PENDING to each sequence, and
the execution side reads the token on the device. If a token ends its sequence, the sequence's part of the later step is
dropped. Blocks that are freed meanwhile can be reallocated at once, because the device computes steps in order.

Used by `transept.core.engine_core`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from transept.core.scheduling.scheduler import Scheduler, forget_pending
from transept.core.scheduling.sequence import SequenceStatus
from transept.core.scheduling.sequence_group import SequenceGroup
from transept.core.scheduling.step import PENDING


def can_look_ahead(groups: list[SequenceGroup], scheduler: Scheduler) -> bool:
    """True if the step after the one with these groups can be scheduled now.

    False if a group needs its tokens first, to fork, to choose the next ones or for a draft, or if blocks may be short,
    since a preempted group's tokens must be known.
    """
    return scheduler.has_ample_blocks and all(
        group.beam_search is None
        and group.num_samples == 1
        and not group.sampling_params.reads_tokens
        and not scheduler.drafting.needs_tokens(group)
        for group in groups
    )


@contextmanager
def pending(groups: list[SequenceGroup]) -> Iterator[None]:
    """In this context, the sequences are one token longer, and have ended if they reach max_tokens."""
    seqs = [(seq, group.sampling_params.max_tokens) for group in groups for seq in group.unfinished_seqs]
    try:
        for seq, max_tokens in seqs:
            seq.output_token_ids.append(PENDING)
            if len(seq.output_token_ids) == max_tokens:
                seq.status = SequenceStatus.LENGTH
        yield
    finally:
        forget_pending(seq for seq, _ in seqs)
