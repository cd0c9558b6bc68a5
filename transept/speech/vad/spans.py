"""Where someone speaks in a recording, by the voice-activity model that the package silero-vad carries.

Batched mode cuts recordings into windows with it, and the VAD filter of sequential mode leaves silence out. Nothing
here knows a speech family, and nothing here changes samples. silero-vad loads with the first call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from transept.multimodal.waveforms import Waveform
from transept.speech.vad.network import FRAME, speech_probabilities
from transept.speech.vad.options import VadOptions

SAMPLE_RATE = 16_000  # Hz
SMOOTHING = 5  # frames; 160 ms, about the shortest pause between words

LONGEST_PAUSE = 16_000  # samples that count when windows are packed; a pause of a second is as good as a longer one

BATCHED_MIN_SILENCE_MS = 64  # two frames: many places where windows may end
FILTER_MIN_SILENCE_MS = 2000


class Span(NamedTuple):
    """A stretch of a recording. start, end: samples at 16 kHz, the end not included."""

    start: int
    end: int


def speech_spans(waveform: Waveform, options: VadOptions | None = None) -> list[Span]:
    """The stretches of a recording in which someone speaks, rising and apart from each other.

    waveform: float32 [num_samples], mono at 16 kHz, of any length: it is read in blocks.
    """
    options = options or VadOptions()
    probabilities = speech_probabilities(waveform)
    from silero_vad import get_speech_timestamps_from_probs  # after the network, which mends what this import does

    min_silence = options.min_silence_duration_ms
    found = get_speech_timestamps_from_probs(
        probabilities.tolist(),
        sampling_rate=SAMPLE_RATE,
        threshold=options.threshold,
        neg_threshold=options.neg_threshold,
        min_speech_duration_ms=options.min_speech_duration_ms,
        min_silence_duration_ms=FILTER_MIN_SILENCE_MS if min_silence is None else min_silence,
        speech_pad_ms=options.speech_pad_ms,
        audio_length_samples=len(waveform),
    )
    spans = [Span(span["start"], span["end"]) for span in found]
    return list(_shortened(waveform, spans, options.max_speech_duration_s * SAMPLE_RATE))


def padded(spans: Sequence[Span], pad: int, num_samples: int) -> list[Span]:
    """Each span with so many samples of the silence before and after it; of a short pause, each side takes half.

    spans: rising, in a recording of num_samples.
    """
    borders = [0, *((one.end + other.start) // 2 for one, other in pairwise(spans)), num_samples]
    return [
        Span(max(span.start - pad, lowest), min(span.end + pad, highest))
        for span, lowest, highest in zip(spans, borders, borders[1:], strict=False)
    ]


def pack(spans: Sequence[Span], kept: Sequence[Span], max_samples: int) -> list[tuple[int, int]]:
    """The fewest windows of max_samples that hold all spans; of those, the ones with the longest pauses between them.

    spans: rising. kept: what a window holds of each, itself at most max_samples; what lies between is cut out. Returns
    the first and the last + 1 span of each window, in order.
    """
    # best[n]: how many windows the first n spans need, and minus the pauses between them; begins[n]: where the last of
    # them begins.
    best, begins = [(0, 0)], [0]
    for n in range(1, len(spans) + 1):
        choices: list[tuple[int, int, int]] = []
        length = 0
        for first in range(n - 1, -1, -1):
            length += kept[first].end - kept[first].start
            if length > max_samples:
                break
            pause = min(spans[first].start - spans[first - 1].end, LONGEST_PAUSE) if first else 0
            num_windows, pauses = best[first]
            choices.append((num_windows + 1, pauses - pause, first))
        num_windows, pauses, first = min(choices)
        best.append((num_windows, pauses))
        begins.append(first)
    windows: list[tuple[int, int]] = []
    end = len(spans)
    while end:
        windows.insert(0, (begins[end], end))
        end = begins[end]
    return windows


def silence_between(spans: Sequence[Span], times: Sequence[float]) -> list[float]:
    """Seconds in which nobody speaks between each two neighbouring times. spans: rising. times: seconds, rising."""
    silence = []
    for begin, end in pairwise(times):
        speech = sum(
            max(0.0, min(span.end / SAMPLE_RATE, end) - max(span.start / SAMPLE_RATE, begin)) for span in spans
        )
        silence.append(end - begin - speech)
    return silence


def _shortened(waveform: Waveform, spans: Iterable[Span], max_samples: float) -> Iterator[Span]:
    """The spans, with those over max_samples cut where they are quietest in the second half of what may be kept."""
    for start, end in spans:
        while end - start > max_samples:
            cut = _quietest(waveform, start + int(max_samples / 2), start + int(max_samples))
            yield Span(start, cut)
            start = cut
        yield Span(start, end)


def _quietest(waveform: Waveform, start: int, end: int) -> int:
    """The sample in the middle of the quietest 160 ms between two samples, which are further apart than that."""
    num_frames = (end - start) // FRAME
    frames = waveform[start : start + num_frames * FRAME].reshape(num_frames, FRAME)
    loudness = np.convolve(np.square(frames).mean(axis=1), np.ones(SMOOTHING), mode="valid")
    return start + int((loudness.argmin() + SMOOTHING / 2) * FRAME)
