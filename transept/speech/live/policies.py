"""Commit policies: which words of a hypothesis are final before the utterance ends.

`Agreement` is LocalAgreement-n (Liu et al. 2020, "Low-Latency Sequence-to-Sequence Speech Recognition"; used with
Whisper by Macháček et al. 2023), `Attention` is AlignAtt (Papi et al. 2023).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from transept.speech.live.hypothesis import HeardWord
from transept.speech.live_options import AGREEMENT, LiveOptions

FEW_LAYERS = 4  # of the decoder, as in tiny
SHORT_FRONTIER, LONG_FRONTIER = 0.5, 0.7  # seconds; default of `frontier`
LEAST_PROBABILITY = 0.2  # by which `frontier` is divided: no word waits longer than five times `frontier`


class Policy(Protocol):
    """Decides for one utterance. `num_final` is called once for each trusted hypothesis."""

    def num_final(self, words: Sequence[HeardWord], end: float) -> int:
        """Return the number of words that are final.

        words: of the hypothesis, after the committed ones. end: of the audio, in seconds of the stream.
        """

    def forget(self) -> None:
        """Forget earlier hypotheses, because the last one was not trusted."""


class Attention:
    """Words are final up to the first one for which the decoder attends to the end of the audio.

    The end is the last `frontier` seconds, divided by the word's probability, so unlikely words wait for more audio.
    For the last word it is at least twice `frontier`, since the word may be the beginning of a longer one.
    """

    def __init__(self, frontier: float) -> None:
        self.frontier = frontier

    def num_final(self, words: Sequence[HeardWord], end: float) -> int:
        """See Policy."""
        last = max((number for number, word in enumerate(words) if word.key), default=0)
        for number, word in enumerate(words):
            probability = max(word.timing.probability, LEAST_PROBABILITY) if word.key else 1.0
            wait = self.frontier * max(1 / probability, 2 if number == last else 1)
            if word.reached > end - wait:
                return number
        return len(words)

    def forget(self) -> None:
        """Do nothing: this policy remembers no hypotheses."""


class Agreement:
    """Words are final once `passes` hypotheses in succession have them."""

    def __init__(self, passes: int) -> None:
        # Of each earlier hypothesis, the keys of its words that are not final.
        self._earlier: deque[list[str]] = deque(maxlen=passes - 1)

    def num_final(self, words: Sequence[HeardWord], end: float) -> int:
        """See Policy."""
        keys = [word.key for word in words]
        number = 0
        if len(self._earlier) == self._earlier.maxlen:
            number = min(_num_common(keys, earlier) for earlier in self._earlier)
        self._earlier.append(keys)
        final = sum(map(bool, keys[:number]))
        for earlier in self._earlier:
            del earlier[: _place(earlier, final)]
        return number

    def forget(self) -> None:
        """Forget earlier hypotheses."""
        self._earlier.clear()


def policy_of(options: LiveOptions, name: str, num_decoder_layers: int) -> Policy:
    """Return the policy for one utterance."""
    if name == AGREEMENT:
        return Agreement(options.passes)
    if options.frontier is not None:
        return Attention(options.frontier)
    return Attention(SHORT_FRONTIER if num_decoder_layers <= FEW_LAYERS else LONG_FRONTIER)


def _num_common(keys: Sequence[str], earlier: Sequence[str]) -> int:
    """Return the number of words up to the first difference from an earlier hypothesis, apart from marks."""
    others = [key for key in earlier if key]
    agreed = 0
    for number, key in enumerate(keys):
        if not key:
            continue
        if agreed == len(others) or others[agreed] != key:
            return number
        agreed += 1
    return len(keys)


def _place(keys: Sequence[str], num_words: int) -> int:
    """Return the index after a number of words, not counting marks."""
    for number, key in enumerate(keys):
        if num_words <= 0:
            return number
        num_words -= bool(key)
    return len(keys)
