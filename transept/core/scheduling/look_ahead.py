"""Scheduling a step while the tokens of the one before it are still being computed.

A GPU should find its next step waiting when it is done with one. Of a step in progress the scheduling side knows all
but which tokens come: it takes each sequence for one token longer, with PENDING at its end, and the execution side
reads that token where it was drawn. Where a token turns out to be the last one, what was computed after it is dropped.

Used by `transept.core.engine`. The device computes what it is given in order, so blocks that are given back meanwhile
can be given away: whoever gets them writes them later.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from transept.core.scheduling.scheduler import Scheduler, forget_pending
from transept.core.scheduling.sequence import SequenceStatus
from transept.core.scheduling.sequence_group import SequenceGroup
from transept.core.scheduling.step import PENDING


def can_look_ahead(groups: list[SequenceGroup], scheduler: Scheduler) -> bool:
    """Whether the step after the one in which these groups take part can be scheduled now.

    Not if a group needs to see its tokens first: to fork, or to choose the next ones by them. And not if blocks are
    short: who is preempted must be known in full.
    """
    return scheduler.has_ample_blocks and all(
        group.beam_search is None and group.num_samples == 1 and not group.sampling_params.reads_tokens
        for group in groups
    )


@contextmanager
def pending(groups: list[SequenceGroup]) -> Iterator[None]:
    """See the sequences of a step as they will be after it: one token longer, and ended where they reach max_tokens."""
    seqs = [(seq, group.sampling_params.max_tokens) for group in groups for seq in group.unfinished_seqs]
    try:
        for seq, max_tokens in seqs:
            seq.output_token_ids.append(PENDING)
            if len(seq.output_token_ids) == max_tokens:
                seq.status = SequenceStatus.LENGTH
        yield
    finally:
        forget_pending(seq for seq, _ in seqs)
