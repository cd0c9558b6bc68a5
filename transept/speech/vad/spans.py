"""Find the speech in a recording, with the voice activity detection of the package silero-vad.

Auto and batched mode divide recordings by it, and the VAD filter of sequential mode leaves silence out. Nothing here
depends on a speech family, or changes samples. silero-vad loads with the first call.
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

LONGEST_PAUSE = 16_000  # samples; for packing, a pause of a second is as good as a longer one
BATCHED_MIN_SILENCE_MS = 64  # two frames; leaves many places where windows may end
FILTER_MIN_SILENCE_MS = 2000


class Span(NamedTuple):
    """A stretch of a recording. start, end: samples at 16 kHz, without the sample at the end."""

    start: int
    end: int


def speech_spans(waveform: Waveform, options: VadOptions | None = None) -> list[Span]:
    """Return the stretches of speech in a recording, ascending and disjoint.

    waveform: float32 [num_samples], mono at 16 kHz, of any length: it is read in blocks.
    """
    options = options or VadOptions()
    probabilities = speech_probabilities(waveform)
    # Imported after the network has loaded, because loading undoes a side effect of this import.
    from silero_vad import get_speech_timestamps_from_probs

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
    """Extend each span by `pad` samples of silence on both sides, or by half of a pause that is too short.

    spans: ascending, in a recording of num_samples.
    """
    borders = [0, *((one.end + other.start) // 2 for one, other in pairwise(spans)), num_samples]
    return [
        Span(max(span.start - pad, lowest), min(span.end + pad, highest))
        for span, lowest, highest in zip(spans, borders, borders[1:], strict=False)
    ]


def pack(spans: Sequence[Span], kept: Sequence[Span], max_samples: int) -> list[tuple[int, int]]:
    """Pack all spans into the fewest windows of max_samples; of those, choose the longest pauses between windows.

    spans: ascending. kept: each span's part of a window, at most max_samples; the audio between the parts is cut out.
    Returns the first and the last + 1 span of each window, in order.
    """
    # best[n]: number of windows for the first n spans, and minus the pauses between them; begins[n]: first span of the
    # last of them.
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
    """Return the seconds of silence between each two adjacent times. spans: ascending. times: seconds, ascending."""
    silence = []
    for begin, end in pairwise(times):
        speech = sum(
            max(0.0, min(span.end / SAMPLE_RATE, end) - max(span.start / SAMPLE_RATE, begin)) for span in spans
        )
        silence.append(end - begin - speech)
    return silence


def _shortened(waveform: Waveform, spans: Iterable[Span], max_samples: float) -> Iterator[Span]:
    """Yield the spans; those over max_samples are cut at the quietest place in the second half of max_samples."""
    for start, end in spans:
        while end - start > max_samples:
            half = start + int(max_samples / 2)
            num_frames = (start + int(max_samples) - half) // FRAME
            frames = waveform[half : half + num_frames * FRAME].reshape(num_frames, FRAME)
            loudness = np.convolve(np.square(frames).mean(axis=1), np.ones(SMOOTHING), mode="valid")
            cut = half + int((loudness.argmin() + SMOOTHING / 2) * FRAME)  # the middle of the quietest 160 ms
            yield Span(start, cut)
            start = cut
        yield Span(start, end)
