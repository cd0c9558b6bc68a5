"""Coverage: speech that no segment covers, so that it is heard again or the reader is told of it.

Models leave things out: a window ends early because the language changes in it, or a sentence that was just read is
taken for said. Where segments leave a gap, voice activity tells whether anybody speaks in it. Both modes ask.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TypeAlias

from transept.multimodal.waveforms import Waveform
from transept.speech.segments import Segment
from transept.speech.vad.spans import SAMPLE_RATE, VadOptions, speech_spans

Stretch: TypeAlias = tuple[float, float]  # seconds: begin, end

LONGEST_GAP = 3.0  # seconds of speech; where all was heard, segments left 0.9 s uncovered at most, else 10 s and more


@dataclass(frozen=True)
class Heard:
    """The segments that a mode found in a recording, in order of time.

    missed_speech: seconds that it left out. num_dropped: windows of which a threshold dropped the text.
    """

    segments: list[Segment] = field(default_factory=list)
    missed_speech: list[Stretch] = field(default_factory=list)
    num_dropped: int = 0


def uncovered(stretches: Iterable[Stretch], segments: Sequence[Segment]) -> list[Stretch]:
    """What segments with text leave out of the stretches, where it is longer than LONGEST_GAP.

    segments: in order of time. Stretches and segments are in the time of the same waveform.
    """
    left_out = []
    for begin, end in stretches:
        for segment in segments:
            if not segment.text.strip() or segment.end <= begin or segment.start >= end:
                continue
            if segment.start - begin > LONGEST_GAP:
                left_out.append((begin, segment.start))
            begin = max(begin, segment.end)
        if end - begin > LONGEST_GAP:
            left_out.append((begin, end))
    return left_out


def spoken_within(waveform: Waveform, stretch: Stretch, options: VadOptions) -> list[Stretch]:
    """Where in a stretch somebody speaks for longer than LONGEST_GAP.

    waveform: float32 [samples] at 16 kHz, whose times the stretch and the result are in.
    """
    first, last = (round(seconds * SAMPLE_RATE) for seconds in stretch)
    options = dataclasses.replace(options, speech_pad_ms=0, max_speech_duration_s=inf)
    spans = speech_spans(waveform[first:last], options)
    times = [
        (round((first + each.start) / SAMPLE_RATE, 2), round((first + each.end) / SAMPLE_RATE, 2)) for each in spans
    ]
    return [(begin, end) for begin, end in times if end - begin > LONGEST_GAP]
