"""DraftLengths: chooses how many draft tokens each sequence gets in a step, so that drafts rarely cost time.

A draft token is worth its row if it adds more tokens per second than the step yields without it. The probability that
it is accepted comes from earlier drafts of its sequence, and of other sequences; the time of its row from earlier
steps. Lengths change no result, only times. Used by `transept.core.scheduling.drafting`.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from transept.core.scheduling.drafter import STRENGTHS, Drafter

FIRST_GUESS = 0.7  # probability that a draft token is accepted, before any was judged
FIRST_ROW = 1 / 8  # time of a draft's row, as a share of the step, before any was measured
GUESS_WEIGHT = 2.0  # of all sequences' acceptance in a sequence's own, in tokens
FORGETTING = 0.95  # of a sequence's judged tokens, for each further one
STEP_SHARE = 0.2  # weight of the newest step in moving averages
TOKEN_SHARE = 0.02  # weight of the newest token in the moving average of acceptance
WORST_RATIO = 3.0  # a step counts as at most this many times as long as one without drafts: other work may delay it
REST = 32  # steps without drafts of a sequence whose drafts do not pay
MEASURE_EVERY = 64  # steps with drafts, at most, between two steps without them


class StepTimes:
    """Moving averages of the times of steps with about the same number of sequences.

    seconds: of a step without drafts; None before the first. row: seconds of one draft token, None likewise.
    """

    def __init__(self) -> None:
        self.seconds: float | None = None
        self.row: float | None = None
        self._num_plain = self._num_drafted = 0  # steps without drafts, and steps with drafts since the last of these

    @property
    def is_due(self) -> bool:
        """True if the next step should have no drafts, so that its time is measured: at first often, then seldom."""
        return self._num_drafted >= min(MEASURE_EVERY, 4**self._num_plain)

    def ended(self, num_draft_tokens: int, seconds: float) -> None:
        """Record the time of a step that only decoded."""
        if self.seconds is not None:
            seconds = min(seconds, WORST_RATIO * self.seconds)
        if not num_draft_tokens:
            self._num_plain, self._num_drafted = self._num_plain + 1, 0
            self.seconds = _mean(self.seconds, seconds)
        elif self.seconds is not None:
            self._num_drafted += 1
            self.row = _mean(self.row, max(0.0, seconds - self.seconds) / num_draft_tokens)


class DraftLengths:
    """Lengths of drafts for one engine, and the measurements behind them."""

    def __init__(self) -> None:
        self._times: dict[int, StepTimes] = {}  # by the bit length of the number of sequences
        self.accepted = [FIRST_GUESS] * (len(STRENGTHS) + 1)  # moving averages over all sequences, by strength

    def times(self, num_seqs: int) -> StepTimes:
        """Return the times of steps with about `num_seqs` sequences."""
        return self._times.setdefault(num_seqs.bit_length(), StepTimes())

    def judged(self, drafter: Drafter, strength: int, num_accepted: int, num_rejected: int) -> None:
        """Record how many tokens of a draft were accepted. num_rejected: 0 or 1; tokens after it are not judged."""
        own = drafter.judged[strength]
        for count, index in ((num_accepted, 0), (num_rejected, 1)):
            for _ in range(count):
                own[0], own[1] = own[0] * FORGETTING, own[1] * FORGETTING
                own[index] += 1
                self.accepted[strength] += TOKEN_SHARE * ((index == 0) - self.accepted[strength])

    def choose(self, drafters: Sequence[Drafter], most: Sequence[int], num_seqs: int) -> list[int]:
        """Return the number of draft tokens for each drafter, up to `most`, in a step of `num_seqs` sequences.

        Adds the tokens that are likeliest to be accepted, while each raises the expected tokens per second.
        """
        times = self.times(num_seqs)
        if times.seconds is None or times.is_due:
            return [0] * len(drafters)
        row = max(times.row if times.row is not None else times.seconds * FIRST_ROW, 1e-9)
        tokens, seconds = float(num_seqs), times.seconds
        chances = [self._chance(drafter) for drafter in drafters]
        lengths = [0] * len(drafters)
        waiting = [(-chance, index) for index, chance in enumerate(chances) if most[index]]
        heapq.heapify(waiting)
        while waiting:
            gain, index = -waiting[0][0], waiting[0][1]
            if gain * seconds <= tokens * row:
                break
            tokens, seconds = tokens + gain, seconds + row
            lengths[index] += 1
            if lengths[index] < most[index]:
                heapq.heapreplace(waiting, (-gain * chances[index], index))
            else:
                heapq.heappop(waiting)
        for drafter, length, limit in zip(drafters, lengths, most, strict=True):
            if limit:
                drafter.num_resting = 0 if length else REST
                drafter.probes = False
        return lengths

    def _chance(self, drafter: Drafter) -> float:
        """Return the probability that the next draft token is accepted, if all before it are."""
        strength = drafter.strength
        accepted, rejected = drafter.judged[strength]
        guess = max(self.accepted[strength], FIRST_GUESS if drafter.probes else 0.0)
        return (accepted + GUESS_WEIGHT * guess) / (accepted + rejected + GUESS_WEIGHT)


def _mean(mean: float | None, newest: float) -> float:
    return newest if mean is None else mean + STEP_SHARE * (newest - mean)
