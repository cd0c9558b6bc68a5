"""KeywordTree: a prefix tree over the token ids of keywords, as an Aho-Corasick automaton (Aho and Corasick 1975).

A sequence's state depends on its last output tokens alone. The sampler adds the scores of a state to the logits
(shallow fusion with a prefix tree, Zhao et al. 2019). The root allows spellings that may begin anywhere. The start is a
second root, for the beginning of the text and for places after an opening mark. It also allows spellings without a
leading blank, which match only at the start of a word.

    root ── Th ── and ── iwe          path    sum of boosts since the root or the last complete term
      └──── Ad ── a                   refund  the part that is subtracted if the match breaks; 0 at the end of a term
    start ─ And ─ ers                 sure    the part that stays: boosts of a complete term within the match
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import lru_cache

from transept.core.request.keywords import REMEMBERED, Spellings

ROOT, START = 0, 1
FIRST_SHARE = 0.2  # of a term's boost, for its first token


class KeywordTree:
    """The automaton of some keywords. States are numbers.

    width: maximum number of tokens with a score in a state.
    """

    def __init__(self, spellings: Spellings) -> None:
        self.openers = spellings.openers
        self.depth = max((len(each.token_ids) for each in spellings), default=0)
        self._children: list[dict[int, int]] = [{}, {}]
        self._boosts: list[float] = [0.0, 0.0]  # of the last token of each state
        self._is_term: list[bool] = [False, False]
        self._length: list[int] = [0, 0]
        self._ends_word: list[bool] = [False, False]  # True for a term after which the word must end
        for each in spellings:
            node = self._add(ROOT if each.begins_anywhere else START, each.token_ids, each.boost)
            self._ends_word[node] = not each.ends_anywhere
        self._link()

    def state(self, output: Sequence[int]) -> int:
        """Return the state after these output tokens."""
        recent = output[max(0, len(output) - self.depth) :]
        before = output[len(output) - len(recent) - 1] if len(output) > len(recent) else None
        state = START if before is None or before in self.openers else ROOT
        for token in recent:
            state = self.next(state, token)
        return state

    def length(self, state: int) -> int:
        """Return the number of tokens of the open match of a state, or of the term that it completes; else 0."""
        return self._length[state]

    def refund(self, state: int) -> float:
        """Return the boosts to subtract if the open match of a state breaks."""
        return self._refund[state]

    def unended(self, state: int) -> float:
        """Return the boosts to subtract if the next token continues the last word; 0 if the state completes no term."""
        return self._path[state] if self._ends_word[state] else 0.0

    def repeated(self, state: int, output: Sequence[int], within: int) -> float:
        """Return the boosts of the term that ends in a state if some of the tokens before the term also write it.

        output: all tokens, of which the last ones are the term. within: number of tokens before the term that count.
        Returns 0 without a term, and for a term that is not repeated.
        """
        if not self._is_term[state]:
            return 0.0
        first = len(output) - self._length[state]
        term, before = output[first:], output[max(0, first - within) : first]
        places = range(len(before) - len(term) + 1)
        return self._path[state] if any(before[place : place + len(term)] == term for place in places) else 0.0

    def scores(self, state: int) -> dict[int, float]:
        """Return the scores of the tokens that continue or begin a match in a state, at least 0.

        The score of a token that continues the match makes up for the refund; see `gain`.
        """
        scores: dict[int, float] = {}
        suffix = state
        while True:  # a longer match comes first
            for token, child in self._children[suffix].items():
                scores.setdefault(token, self._path[child] - self._sure[suffix])
            if suffix == ROOT:
                return scores
            suffix = self._fail[suffix]

    def gain(self, state: int, token: int) -> float:
        """Return what keywords add to the log probability of a token in a state: its score minus the refund."""
        refund, suffix = self._refund[state], state
        while token not in self._children[suffix]:
            if suffix == ROOT:
                return -refund
            suffix = self._fail[suffix]
        return self._path[self._children[suffix][token]] - self._sure[suffix] - refund

    def _add(self, root: int, token_ids: Sequence[int], boost: float) -> int:
        """Add a term below a root, and return its state."""
        node = root
        for depth, token in enumerate(token_ids):
            child = self._children[node].get(token)
            if child is None:
                child = self._children[node][token] = len(self._children)
                self._children.append({})
                self._boosts.append(0.0)
                self._is_term.append(False)
                self._length.append(depth + 1)
                self._ends_word.append(False)
            self._boosts[child] = max(self._boosts[child], boost * (FIRST_SHARE if depth == 0 else 1.0))
            node = child
        self._is_term[node] = True
        return node

    def _link(self) -> None:
        """Set each state's failure link, to its longest suffix that is also a state, and its sums, breadth-first."""
        size = len(self._children)
        self._fail = [ROOT] * size
        self._path, self._refund, self._sure = [0.0] * size, [0.0] * size, [0.0] * size
        ended = [0.0] * size  # highest boosts of a term that is a suffix of the state
        totals = [0.0] * size  # sum of boosts since the root
        widths = [len(children) for children in self._children]  # at least the tokens with a score
        widths[START] += widths[ROOT]
        waiting = deque([ROOT, START])
        while waiting:
            node = waiting.popleft()
            for token, child in self._children[node].items():
                self._fail[child] = ROOT if node == ROOT else self.next(self._fail[node], token, within=True)
                fail = self._fail[child]
                totals[child] = totals[node] + self._boosts[child]
                self._path[child] = (0.0 if self._is_term[node] else self._path[node]) + self._boosts[child]
                ended[child] = max(ended[fail], totals[fail] if self._is_term[fail] else 0.0)
                if not self._is_term[child]:
                    self._sure[child] = min(self._path[child], ended[child])
                    self._refund[child] = self._path[child] - self._sure[child]
                widths[child] += widths[fail]
                waiting.append(child)
        self.width = max(1, *widths)

    def next(self, state: int, token: int, within: bool = False) -> int:
        """Return the state after one more token. within: True to stay in the root after an opening mark."""
        while token not in self._children[state]:
            if state == ROOT:
                return START if token in self.openers and not within else ROOT
            state = self._fail[state]
        return self._children[state][token]


tree_of = lru_cache(REMEMBERED)(KeywordTree)
