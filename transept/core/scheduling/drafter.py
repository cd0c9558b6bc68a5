"""Drafter: guesses the next tokens of one sequence, from a text that the output may repeat or by a draft model.

The text is the caller's (`draft_tokens`), or the encoder's prompt and the output itself (``draft="lookup"``: prompt
lookup, Saxena 2023). A draft changes no result: a step computes the tokens after the draft's as well, and keeps those
that would have been chosen without it. Used by `transept.core.scheduling.drafting`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from transept.core.request.inputs import EncoderInputs
from transept.core.request.sampling_params import SamplingParams

LONGEST_MATCH = 8  # tokens; longer matches are not better
NEIGHBOURHOOD = 8  # tokens; a match of one token that is farther away is chance
REPEATED = 3  # tokens of the output that must occur in it again, for a draft from the output itself
STRENGTHS = (3, 8)  # least tokens before a draft that agree with the text, for drafts of strength 1 and 2
NUM_STRENGTHS = len(STRENGTHS) + 2  # the last one is of draft models


class DraftText:
    """A text that outputs may repeat, with the places of its tokens. Shared by the sequences of a request.

    is_expected: True if the output probably is this text, from its start: the caller's draft. False for the encoder's
    prompt, of which the output may repeat parts.
    """

    def __init__(self, token_ids: Sequence[int], is_expected: bool) -> None:
        self.token_ids, self.is_expected = token_ids, is_expected
        self.places: dict[int, list[int]] = {}
        for place, token in enumerate(token_ids):
            self.places.setdefault(token, []).append(place)

    def after(self, tail: Sequence[int], near: int) -> tuple[int, int]:
        """Return the place after the longest match of the tail's end, the one nearest to `near`, and its length.

        Returns (near, 0) without a match.
        """
        best, length, text = near, 0, self.token_ids
        for place in self.places.get(tail[-1], ()):
            count, most = 1, min(len(tail), place + 1, LONGEST_MATCH)
            while count < most and text[place - count] == tail[-1 - count]:
                count += 1
            if count > length or (count == length and abs(place + 1 - near) < abs(best - near)):
                best, length = place + 1, count
        return best, length


def text_of_drafts(params: SamplingParams, encoder: EncoderInputs) -> DraftText | None:
    """Return the text from which a request's drafts come; None if it has no drafts.

    Not for beam searches, whose beams replace each other.
    """
    if params.draft_tokens:
        return DraftText(params.draft_tokens, is_expected=True)  # type: ignore[arg-type]  # ids, by the processor
    return DraftText(encoder.token_ids, is_expected=False) if params.draft == "lookup" else None


class Drafter(ABC):
    """Proposes the next tokens of one sequence, also after a preemption; a fork gets its own drafter."""

    of_model = False  # True if a draft model computes the tokens

    def __init__(self) -> None:
        self.judged = [[0.0, 0.0] for _ in range(NUM_STRENGTHS)]  # accepted and rejected tokens, by strength
        self.cost = 0.0  # of a draft token, in tokens that a sequence gets in its time without drafts
        self.balance = 0.0  # in the same unit: accepted tokens, minus the costs of all
        self.num_misses = 0  # steps without a draft since the last one; set by Drafting
        self.num_resting = 0  # steps without drafts that remain, after drafts did not pay

    @property
    def num_judged(self) -> float:
        """Number of draft tokens that were accepted or rejected; older ones count less."""
        return sum(map(sum, self.judged))

    @property
    def is_reliable(self) -> bool:
        """True if draft tokens were accepted, and none was rejected."""
        return self.num_judged > 0 and not any(rejected for _, rejected in self.judged)

    @property
    @abstractmethod
    def strength(self) -> int:
        """Class of the next draft, by which acceptance is measured."""

    @abstractmethod
    def propose(self, prompt: Sequence[int], output: Sequence[int], most: int) -> list[int]:
        """Return up to `most` tokens that may follow the output. prompt: the decoder's."""


class TextDrafter(Drafter):
    """Follows a sequence through a text."""

    def __init__(self, text: DraftText) -> None:
        super().__init__()
        self.text = text
        self.num_agreeing = LONGEST_MATCH if text.is_expected else 0  # tokens before the next one, as in the text
        self._place = 0  # in the text, of the next token
        self._num_seen = 0  # output tokens
        self._repeats: dict[tuple[int, ...], int] = {}  # runs of REPEATED output tokens -> place after the last one

    @property
    def strength(self) -> int:
        """Class of the next draft: the more tokens agree, the likelier is the next one."""
        return sum(self.num_agreeing >= least for least in STRENGTHS)

    def propose(self, prompt: Sequence[int], output: Sequence[int], most: int) -> list[int]:
        """See Drafter."""
        self._see(prompt, output)
        least = 1 if self.text.is_expected else 2
        if self.num_agreeing >= least or (self.text.is_expected and self._place):
            return [*self.text.token_ids[self._place : self._place + most]]
        if not self.text.is_expected and len(output) >= REPEATED:
            place = self._repeats.get((*output[-REPEATED:],), len(output))
            return [*output[place : place + most]]
        return []

    def _see(self, prompt: Sequence[int], output: Sequence[int]) -> None:
        """Follow the new tokens, and find the place again if the last one is not the text's."""
        text, lost = self.text.token_ids, not self._num_seen
        if not self.text.is_expected and len(output) > REPEATED:
            for end in range(max(self._num_seen, REPEATED), len(output)):
                self._repeats[(*output[end - REPEATED : end],)] = end
        for token in output[self._num_seen :]:
            lost = not (self._place < len(text) and text[self._place] == token)
            self.num_agreeing = 0 if lost else self.num_agreeing + 1
            self._place += 1  # if the token is another one, it probably replaces the text's
        self._num_seen = len(output)
        if lost and output:
            tail = [*prompt[-LONGEST_MATCH:], *output[-LONGEST_MATCH:]]
            place, length = self.text.after(tail, near=self._place)
            if length > 1 or abs(place - self._place) <= NEIGHBOURHOOD:
                self._place, self.num_agreeing = place, length
