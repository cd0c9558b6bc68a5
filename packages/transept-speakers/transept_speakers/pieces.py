"""Pieces: stretches in which one voice of a chunk speaks alone. Pieces of one speaker are joined into turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from transept_speakers.segmentation import HOP, RATE, VOICES, Chunk

LONGEST = 2.5  # seconds of a piece
LONGEST_PAUSE = 0.5  # seconds within one turn
HALF_FRAME = HOP / RATE / 2  # seconds


class Piece(NamedTuple):
    """A stretch of one voice. chunk, voice: their numbers. start, end: seconds."""

    chunk: int
    voice: int
    start: float
    end: float


def cut_into_pieces(chunks: Sequence[Chunk]) -> list[Piece]:
    """Return the pieces of a recording: the speech of each voice alone, in equal parts of at most LONGEST."""
    pieces = []
    for number, chunk in enumerate(chunks):
        alone = chunk.active & (chunk.active.sum(axis=1, keepdims=True) == 1)
        for voice in range(VOICES):
            for start, end in _stretches(chunk.times, alone[:, voice]):
                cuts = np.linspace(start, end, int(np.ceil((end - start) / LONGEST)) + 1).tolist()
                pieces += [Piece(number, voice, *part) for part in pairwise(cuts)]
    return pieces


def join_turns(
    chunks: Sequence[Chunk], pieces: Sequence[Piece], speakers: npt.NDArray[np.intp]
) -> list[tuple[float, float, str]]:
    """Return turns (start, end, speaker) in order of time. speakers: of each piece.

    A turn spans short pauses. Where voices overlap, each gets the speaker of its nearest piece.
    """
    parts = [(piece.start, piece.end, int(speaker)) for piece, speaker in zip(pieces, speakers, strict=True)]
    parts += _overlapped(chunks, pieces, speakers)
    turns: dict[int, list[list[float]]] = {}
    for start, end, speaker in sorted(parts):
        own = turns.setdefault(speaker, [])  # `turns` is in the order of first turns
        if own and start - own[-1][1] <= LONGEST_PAUSE:
            own[-1][1] = max(own[-1][1], end)
        else:
            own.append([start, end])
    return sorted(
        (start, end, f"speaker {number}") for number, own in enumerate(turns.values(), start=1) for start, end in own
    )


def _overlapped(
    chunks: Sequence[Chunk], pieces: Sequence[Piece], speakers: npt.NDArray[np.intp]
) -> Iterator[tuple[float, float, int]]:
    """Yield (start, end, speaker) for each stretch in which a voice speaks at the same time as another one."""
    of_voice: dict[tuple[int, int], list[tuple[Piece, int]]] = {}
    for piece, speaker in zip(pieces, speakers, strict=True):
        of_voice.setdefault((piece.chunk, piece.voice), []).append((piece, int(speaker)))
    for number, chunk in enumerate(chunks):
        several = chunk.active.sum(axis=1) > 1
        for voice in range(VOICES):
            own = of_voice.get((number, voice))
            if own is None:
                continue
            for start, end in _stretches(chunk.times, chunk.active[:, voice] & several):
                _, speaker = min(own, key=lambda each: max(each[0].start - end, start - each[0].end))
                yield start, end, speaker


def _stretches(times: npt.NDArray[np.float64], on: npt.NDArray[np.bool_]) -> list[tuple[float, float]]:
    """Return the stretches of adjacent frames that are on, (start, end) in seconds. times: of the frames' middles."""
    changes = np.flatnonzero(np.diff(on, prepend=False, append=False))
    return [
        (max(0.0, float(times[first] - HALF_FRAME)), float(times[last - 1] + HALF_FRAME))
        for first, last in changes.reshape(-1, 2)
    ]
