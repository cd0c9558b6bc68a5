"""DraftLengths: chooses how many draft tokens each sequence gets in a step, so that drafts rarely cost time.

A draft token is worth its time if it adds more tokens per second than the step yields without it. The probability that
it is accepted comes from earlier drafts of its sequence, and of other sequences; the time of a token from earlier
steps with about as many sequences. For a draft model's tokens, that includes the time of the draft model. A small share
of all time is for drafts that are only promising. Lengths change no result, only times. Used by
`transept.core.scheduling.drafting`.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from transept.core.scheduling.drafter import NUM_STRENGTHS, Drafter

FIRST_GUESS = 0.7  # probability that a draft token is accepted, before any was judged
FIRST_COST = 1 / 8  # time of a draft token before any was measured, as a share of a step of one sequence
SHARE_OF_SEQUENCE = 1 / 4  # the same for more sequences, as a share of a sequence's part of the step
GUESS_WEIGHT = 2.0  # of all sequences' acceptance in a sequence's own, in tokens
FORGETTING = 0.95  # of a sequence's judged tokens, for each further one
STEP_SHARE = 0.2  # weight of the newest step in moving averages
TOKEN_SHARE = 0.1  # weight of the newest token in the moving average of acceptance
WORST_RATIO = 3.0  # a step counts as at most this many times as long as one without drafts: other work may delay it
REST, SHORT_REST = 32, 8  # steps without drafts of a sequence whose drafts do not pay; short if none has lost time
MEASURE_EVERY = 64  # steps with drafts, at most, between two steps without them; steps for which costs are valid
TRIAL, TRIAL_PART = 4, 4  # draft tokens of a step that measures their cost: so many, or a part of the sequences
TRIAL_SHARE = 0.005  # of the time of decoding, for drafts that pay only if they are better than others were
MARGIN = 1.15  # by which a token must pay, since sequences of a batch do not end at the same time
ALLOWANCE, MOST_BALANCE = 0.3, 1.0  # of a sequence's drafts: see Drafter.balance
MOST_SPARE = 0.2  # of the time of a step, for such drafts in one step


class StepTimes:
    """Moving averages of the times of steps with about the same number of sequences.

    seconds: of a step without drafts; None before the first.
    """

    def __init__(self) -> None:
        self.seconds: float | None = None
        self._num_plain = self._num_drafted = 0  # steps without drafts, and steps with drafts since the last of these
        self._costs: list[float | None] = [None, None]  # seconds of a draft token: of a text, of a draft model
        self._measured = [0, 0]  # the number of plain steps when a cost was measured

    @property
    def is_due(self) -> bool:
        """True if the next step should have no drafts, so that its time is measured: at first often, then seldom."""
        return self._num_drafted >= min(MEASURE_EVERY, 4**self._num_plain)

    def cost(self, of_model: bool) -> float | None:
        """Return the seconds that a draft token takes; None if they are not known, or not any more."""
        is_new = self._num_plain - self._measured[of_model] < MEASURE_EVERY
        return self._costs[of_model] if is_new else None

    def ended(self, num_of_texts: int, num_of_model: int, seconds: float) -> None:
        """Record the time of a step that only decoded, with so many draft tokens of texts and of a draft model."""
        if self.seconds is not None:
            seconds = min(seconds, WORST_RATIO * self.seconds)
        if not (num_of_texts or num_of_model):
            self._num_plain, self._num_drafted = self._num_plain + 1, 0
            self.seconds = _mean(self.seconds, seconds)
        elif self.seconds is not None:
            self._num_drafted += 1
            of_model, count = num_of_model > 0, num_of_model or num_of_texts
            known = (self._costs[False] or 0.0) * num_of_texts if of_model else 0.0
            cost = max(0.0, seconds - self.seconds - known) / count
            self._costs[of_model] = _mean(self.cost(of_model), cost)
            self._measured[of_model] = self._num_plain


class DraftLengths:
    """Lengths of drafts for one engine, and the measurements behind them."""

    def __init__(self) -> None:
        self._times: dict[int, StepTimes] = {}  # by the bit length of the number of sequences
        self.accepted = [FIRST_GUESS] * NUM_STRENGTHS  # moving averages over all sequences, by strength
        self._spare = 0.0  # seconds for trials

    def ended(self, num_seqs: int, num_of_texts: int, num_of_model: int, seconds: float) -> None:
        """Record the time of a step that only decoded; see StepTimes."""
        self._spare += TRIAL_SHARE * seconds
        self.times(num_seqs).ended(num_of_texts, num_of_model, seconds)

    def times(self, num_seqs: int) -> StepTimes:
        """Return the times of steps with about `num_seqs` sequences."""
        return self._times.setdefault(num_seqs.bit_length(), StepTimes())

    def judged(self, drafter: Drafter, strength: int, num_drafted: int, num_accepted: int) -> None:
        """Record how many tokens of a draft were accepted. Of the others, only the first one is judged."""
        own, num_rejected = drafter.judged[strength], int(num_accepted < num_drafted)
        drafter.balance = min(MOST_BALANCE, drafter.balance + num_accepted - num_drafted * drafter.cost)
        for count, index in ((num_accepted, 0), (num_rejected, 1)):
            for _ in range(count):
                own[0], own[1] = own[0] * FORGETTING, own[1] * FORGETTING
                own[index] += 1
                self.accepted[strength] += TOKEN_SHARE * ((index == 0) - self.accepted[strength])

    def choose(self, drafters: Sequence[Drafter], most: Sequence[int], num_seqs: int, room: int) -> list[int]:
        """Return the number of draft tokens for each drafter, up to `most`, in a step of `num_seqs` sequences.

        Adds the tokens that are likeliest to be accepted, while each raises the expected tokens per second, up to
        `room` tokens in all. While the cost of tokens is not known, it adds only a few.
        """
        times, lengths = self.times(num_seqs), [0] * len(drafters)
        if times.seconds is None or times.is_due:
            return lengths
        guess = times.seconds * min(FIRST_COST, SHARE_OF_SEQUENCE / num_seqs)
        few = max(TRIAL, num_seqs // TRIAL_PART)
        costs, limits = [], []  # of tokens of texts, and of a draft model, of which a pass computes one for each
        for of_model in (False, True):
            cost = times.cost(of_model)
            costs.append(guess if cost is None else max(cost, 1e-9))
            limits.append(room if cost is not None else max(TRIAL, num_seqs) if of_model else few)
        untried = few + 2 * sum(each.is_reliable for each in drafters)  # tokens of sequences without judged ones
        tokens, seconds, spare = float(num_seqs), times.seconds, min(self._spare, MOST_SPARE * times.seconds)
        waiting = []
        for index, drafter in enumerate(drafters):
            drafter.cost = costs[drafter.of_model] * num_seqs / times.seconds
            if most[index] and drafter.balance > -ALLOWANCE:
                likely, hoped = self._chances(drafter)
                waiting.append((-hoped, index, likely, hoped))
        heapq.heapify(waiting)
        while waiting and room:
            gain, index, likely, hoped = waiting[0]
            drafter = drafters[index]
            cost = costs[drafter.of_model]
            is_trial = likely ** (lengths[index] + 1) * seconds <= MARGIN * tokens * cost
            pays = -gain * seconds > MARGIN * tokens * cost and (not is_trial or spare >= cost)
            if not (pays and limits[drafter.of_model] and (untried or drafter.num_judged)):
                heapq.heappop(waiting)
                continue
            if is_trial:
                spare -= cost
            tokens, seconds, room = tokens - gain, seconds + cost, room - 1
            limits[drafter.of_model] -= 1
            untried -= not drafter.num_judged
            lengths[index] += 1
            if lengths[index] < most[index]:
                heapq.heapreplace(waiting, (gain * hoped, index, likely, hoped))
            else:
                heapq.heappop(waiting)
        for drafter, length, limit in zip(drafters, lengths, most, strict=True):
            if limit and (untried or drafter.num_judged) and times.cost(drafter.of_model) is not None:
                drafter.num_resting = 0 if length else REST if drafter.balance < 0.0 else SHORT_REST
                drafter.balance = drafter.balance if length else 0.0
        self._spare = spare
        return lengths

    def _chances(self, drafter: Drafter) -> tuple[float, float]:
        """Return the probability that the next draft token is accepted, if all before it are: likely, and hoped for.

        The first starts from the acceptance of all sequences, and follows the sequence's own with more judged tokens.
        The second starts from FIRST_GUESS if that is higher.
        """
        strength = drafter.strength
        accepted, rejected = drafter.judged[strength]
        guess, weight = self.accepted[strength], accepted + rejected + GUESS_WEIGHT
        likely, hoped = ((accepted + GUESS_WEIGHT * each) / weight for each in (guess, max(guess, FIRST_GUESS)))
        return likely, hoped


def _mean(mean: float | None, newest: float) -> float:
    return newest if mean is None else mean + STEP_SHARE * (newest - mean)
