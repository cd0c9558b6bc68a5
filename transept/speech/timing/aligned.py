"""Times of words by an installed plugin with the hook ``align_words``, beside Transept's own.

`boundaries.refined` places the words first, so each segment's stretch of the recording is known. The plugin then times
the segment's words in that stretch. Where it cannot, because of the language or a bad match, the first times remain.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Sequence
from functools import partial
from typing import Any

from transept.core.jobs.job import Offload
from transept.multimodal.waveforms import Waveform
from transept.registry.word_aligners import WordAligner
from transept.speech.segments import Segment
from transept.speech.timing.boundaries import STRAYED, refined
from transept.speech.vad.spans import SAMPLE_RATE
from transept.speech.word_breaks import SHORTEST, lengthened

MARGIN = 0.8  # seconds before and after a segment in which its words may lie


def word_times(
    segments: Sequence[Segment],
    waveform: Waveform,
    limits: tuple[float, float],
    aligner: WordAligner | None,
    language: str,
    *,
    strayed: float = STRAYED,
) -> Generator[Any, Any, list[Segment]]:
    """A job: the segments with refined times of words, by the plugin if there is one.

    language: code, for segments that have none. Other arguments: see `boundaries.refined`.
    """
    found = refined(segments, waveform, limits, strayed=strayed)
    if aligner is None or not found:
        return found
    aligned: list[Segment] = yield Offload(partial(_aligned, found, waveform, limits, aligner, language))
    return aligned


def _aligned(
    segments: list[Segment], waveform: Waveform, limits: tuple[float, float], aligner: WordAligner, language: str
) -> list[Segment]:
    starts = [segment.start for segment in segments[1:]]
    done, found = limits[0], []
    for segment, following in zip(segments, [*starts, limits[1]], strict=True):
        begin = max(done, segment.start - MARGIN)
        end = min(max(following, segment.end), segment.end + MARGIN)
        if segment.words and end > begin:
            segment = _of_one(segment, waveform, (begin, end), aligner, segment.language or language)
        done = max(done, segment.end)
        found.append(segment)
    return found


def _of_one(
    segment: Segment, waveform: Waveform, stretch: tuple[float, float], aligner: WordAligner, language: str
) -> Segment:
    """Return a segment with the times that the plugin finds in a stretch: start and end in seconds."""
    begin, end = stretch
    words = segment.words or []
    sound = waveform[round(begin * SAMPLE_RATE) : round(end * SAMPLE_RATE)]
    times = aligner(sound, SAMPLE_RATE, [word.word.strip() for word in words], language)
    if times is None:
        return segment
    starts, ends = ([min(begin + time, end) for time in each] for each in zip(*times, strict=True))
    if min(starts) < begin or len(words) * SHORTEST > end - begin:
        return segment
    placed = lengthened(
        [
            dataclasses.replace(word, start=round(start, 2), end=round(stop, 2))
            for word, start, stop in zip(words, starts, ends, strict=True)
        ]
    )
    placed = [dataclasses.replace(each, start=round(each.start, 2), end=round(each.end, 2)) for each in placed]
    return dataclasses.replace(segment, start=placed[0].start, end=placed[-1].end, words=placed)
