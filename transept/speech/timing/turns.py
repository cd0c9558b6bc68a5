"""Turns of speakers beside the words of segments: which word is whose, and where a segment is cut.

Called by `transept.speech.conversation`, with what a diarizer found.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from itertools import accumulate, groupby
from typing import TypeAlias

import numpy as np

from transept.registry.diarizers import Turn
from transept.speech.segments import Segment
from transept.speech.word_breaks import parts_of_words

Decode: TypeAlias = Callable[[Sequence[int]], str]  # the text of tokens, timestamps left out


class Turns:
    """Who speaks when in a recording. turns: in any order; they may overlap."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self.speakers = list(dict.fromkeys(turn.speaker for turn in turns))  # in order of their first turns
        self.starts = np.array([turn.start for turn in turns])
        self.ends = np.array([turn.end for turn in turns])
        self.owners = np.array([self.speakers.index(turn.speaker) for turn in turns], np.intp)

    def speaker(self, start: float, end: float) -> str | None:
        """Who speaks longest between two times; where nobody does, whose turn is nearest; None without any turn."""
        if not self.speakers:
            return None
        overlaps = np.minimum(self.ends, end) - np.maximum(self.starts, start)  # [turns]; seconds apart where negative
        if overlaps.max() <= 0.0:
            return self.speakers[self.owners[overlaps.argmax()]]
        seconds = np.bincount(self.owners, weights=overlaps.clip(0.0), minlength=len(self.speakers))
        return self.speakers[int(seconds.argmax())]

    def cut(self, segment: Segment, decode: Decode) -> list[Segment]:
        """A segment with its speaker, cut between words of different speakers; whole where its words have no times."""
        if not segment.words:
            return [dataclasses.replace(segment, speaker=self.speaker(segment.start, segment.end))]
        owned = [
            (self.speaker(parts[0].start, parts[-1].end), word)
            for parts in parts_of_words(segment.words)
            for word in parts
        ]
        runs = [(speaker, [word for _, word in run]) for speaker, run in groupby(owned, key=lambda each: each[0])]
        if len(runs) == 1:
            return [dataclasses.replace(segment, speaker=runs[0][0])]
        texts = ["".join(word.word for word in words) for _, words in runs]
        begins = [0, *_token_cuts(segment.tokens, texts, decode), len(segment.tokens)]
        parts = []
        for index, ((speaker, words), text) in enumerate(zip(runs, texts, strict=True)):
            own = slice(begins[index], begins[index + 1])
            parts.append(
                dataclasses.replace(
                    segment,
                    start=words[0].start,
                    end=words[-1].end,
                    text=text,
                    tokens=segment.tokens[own],
                    words=words,
                    token_logprobs=None if segment.token_logprobs is None else segment.token_logprobs[own],
                    speaker=speaker,
                )
            )
        return parts


def _token_cuts(tokens: Sequence[int], texts: Sequence[str], decode: Decode) -> list[int]:
    """Where the tokens of all texts but the first begin. texts: parts of what the tokens say, in order."""
    ends = list(accumulate(map(len, texts)))[:-1]  # characters
    cuts: list[int] = []
    for index in range(len(tokens) + 1):
        text = decode(tokens[:index]).rstrip("\ufffd")  # the begin of a character is none yet
        while len(cuts) < len(ends) and len(text) >= ends[len(cuts)]:
            cuts.append(index)
    return cuts + [len(tokens)] * (len(ends) - len(cuts))
