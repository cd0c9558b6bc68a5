"""Cut segments between words, where the speaker changes or silence was left out.

`transept.speech.conversation` makes `Turns` from a diarizer's result; sequential decoding calls `cut_between_words`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from itertools import accumulate, groupby
from typing import TypeAlias, TypeVar

import numpy as np

from transept.registry.diarizers import Turn
from transept.speech.segments import Segment
from transept.speech.word_breaks import parts_of_words

Owner = TypeVar("Owner")
SAME_TIME = 1e-6  # seconds; smaller differences are rounding errors
Decode: TypeAlias = Callable[[Sequence[int]], str]  # tokens -> their text, without timestamps


class Turns:
    """The turns of speakers in a recording. turns: in any order; they may overlap."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self.speakers = list(dict.fromkeys(turn.speaker for turn in turns))  # in order of their first turns
        self.starts = np.array([turn.start for turn in turns])
        self.ends = np.array([turn.end for turn in turns])
        self.owners = np.array([self.speakers.index(turn.speaker) for turn in turns], np.intp)

    def speaker(self, start: float, end: float) -> str | None:
        """Return who speaks longest between two times, or has the nearest turn; None without turns.

        If several speak equally long, return the one whose turn began first, so an interruption changes no speaker.
        """
        if not self.speakers:
            return None
        overlaps = np.minimum(self.ends, end) - np.maximum(self.starts, start)  # [turns], seconds; negative: distances
        if overlaps.max() <= 0.0:
            return self.speakers[self.owners[overlaps.argmax()]]
        seconds = np.bincount(self.owners, weights=overlaps.clip(0.0), minlength=len(self.speakers))
        longest = (overlaps > 0.0) & (seconds[self.owners] > seconds.max() - SAME_TIME)  # [turns]
        return self.speakers[self.owners[np.where(longest, self.starts, np.inf).argmin()]]

    def cut(self, segment: Segment, decode: Decode) -> list[Segment]:
        """Cut a segment between words of different speakers. Without word times it stays whole."""
        return [
            dataclasses.replace(part, speaker=speaker)
            for speaker, part in cut_between_words(segment, self.speaker, decode)
        ]


def cut_between_words(
    segment: Segment, owner: Callable[[float, float], Owner], decode: Decode
) -> list[tuple[Owner, Segment]]:
    """Cut a segment where the owner of its words changes. Without word times it stays whole.

    owner: called with the start and the end of a word. Returns each part with its owner.
    """
    if not segment.words:
        return [(owner(segment.start, segment.end), segment)]
    owned = [(owner(parts[0].start, parts[-1].end), word) for parts in parts_of_words(segment.words) for word in parts]
    runs = [(own, [word for _, word in run]) for own, run in groupby(owned, key=lambda each: each[0])]
    if len(runs) == 1:
        return [(runs[0][0], segment)]
    texts = ["".join(word.word for word in words) for _, words in runs]
    begins = [0, *_token_cuts(segment.tokens, texts, decode), len(segment.tokens)]
    found = []
    for index, ((whose, words), text) in enumerate(zip(runs, texts, strict=True)):
        own_tokens = slice(begins[index], begins[index + 1])
        part = dataclasses.replace(
            segment,
            start=words[0].start,
            end=words[-1].end,
            text=text,
            tokens=segment.tokens[own_tokens],
            words=words,
            token_logprobs=None if segment.token_logprobs is None else segment.token_logprobs[own_tokens],
        )
        found.append((whose, part))
    return found


def _token_cuts(tokens: Sequence[int], texts: Sequence[str], decode: Decode) -> list[int]:
    """Return where the tokens of all texts but the first begin. texts: parts of the tokens' text, in order."""
    ends = list(accumulate(map(len, texts)))[:-1]  # characters
    cuts: list[int] = []
    for index in range(len(tokens) + 1):
        text = decode(tokens[:index]).rstrip("\ufffd")  # without an incomplete character
        while len(cuts) < len(ends) and len(text) >= ends[len(cuts)]:
            cuts.append(index)
    return cuts + [len(tokens)] * (len(ends) - len(cuts))
