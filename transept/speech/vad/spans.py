"""Where someone speaks in a recording, by the voice-activity model that the package silero-vad carries.

Batched mode cuts recordings into windows with it, and the VAD filter of sequential mode leaves silence out. Nothing
here knows a speech family, and nothing here changes samples. silero-vad loads with the first call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from numbers import Real
from typing import NamedTuple

import numpy as np

from transept.errors import ParameterError
from transept.multimodal.waveforms import Waveform
from transept.option_names import refuses_unknown
from transept.speech.vad.network import FRAME, speech_probabilities

SAMPLE_RATE = 16_000  # Hz
SMOOTHING = 5  # frames; 160 ms, about the shortest pause between words

LONGEST_PAUSE = 16_000  # samples that count when windows are packed; a pause of a second is as good as a longer one

BATCHED_MIN_SILENCE_MS = 64  # two frames: many places where windows may end
FILTER_MIN_SILENCE_MS = 2000


@refuses_unknown("VadOptions has no")
@dataclass(frozen=True)
class VadOptions:
    """What counts as speech, under faster-whisper's names.

    threshold: a frame as likely as this to be speech begins a span.
    neg_threshold: one that is less likely than this may end it. None: threshold - 0.15, at least 0.01.
    min_speech_duration_ms: shorter spans are dropped.
    max_speech_duration_s: longer spans are cut at their quietest points. Batched mode never goes beyond the model's
        window.
    min_silence_duration_ms: a shorter pause does not end a span. None: 2000, or 64 in batched mode.
    speech_pad_ms: what a span takes of the silence before and after it; of a short pause, each side takes half.
    Raises ParameterError for unknown options and values out of range.
    """

    threshold: float = 0.5
    neg_threshold: float | None = None
    min_speech_duration_ms: float = 0
    max_speech_duration_s: float = inf
    min_silence_duration_ms: float | None = None
    speech_pad_ms: float = 400

    @classmethod
    def names(cls) -> list[str]:
        """The names of all options."""
        return [each.name for each in dataclasses.fields(cls)]

    def __post_init__(self) -> None:
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            unset = value is None and each.default is None
            if not unset and (isinstance(value, bool) or not isinstance(value, Real)):
                raise ParameterError(f"{each.name} must be a number, not {value!r}")
        for name in ("threshold", "neg_threshold"):
            value = getattr(self, name)
            if value is not None and not 0.0 < value < 1.0:
                raise ParameterError(f"{name} is {value}; it is a probability between 0 and 1, such as 0.5")
        if self.neg_threshold is not None and self.neg_threshold > self.threshold:
            raise ParameterError(f"neg_threshold ({self.neg_threshold}) must not be above threshold ({self.threshold})")
        for name in ("min_speech_duration_ms", "min_silence_duration_ms", "speech_pad_ms"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < inf:
                raise ParameterError(f"{name} is {value}; it is a time in milliseconds, at least 0")
        if not self.max_speech_duration_s >= 1.0:
            raise ParameterError(f"max_speech_duration_s is {self.max_speech_duration_s}; it must be at least 1 second")


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
