"""Batched mode: the silence is cut out of a recording, and windows of what is left are decoded beside each other.

The windows of one recording and of many share the engine's batch; each has its own thresholds, its own fallback and,
where that is asked for, its own language. Transcriber calls `transcribe`, which takes and gives what that of
`transept.speech.algorithms.sequential` does.

A window is decoded without timestamps: a model that writes them sometimes ends a window before its speech ends, which
only a next window that begins there can mend. Where its words lie is found afterwards, from cross-attention, and it is
cut into segments between sentences. Where no word begins for long although someone speaks, the model has left something
out, as it does with a sentence that it has just read: then the window is decoded again, in two parts, without the text
before it.
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from transept.core.jobs import Gather, Offload
from transept.errors import ParameterError
from transept.multimodal.audio import Waveform
from transept.speech.algorithms.decoding import DecodedWindow, decode_window, is_silent
from transept.speech.algorithms.language import Language, recording_language, window_language
from transept.speech.algorithms.sequential import EarlierText, clips
from transept.speech.algorithms.speech_only import Clock
from transept.speech.algorithms.window_words import time_words
from transept.speech.events import Found
from transept.speech.options import TranscriptionOptions
from transept.speech.segments import Segment
from transept.speech.speech_model import SpeechModel
from transept.speech.timing.sentences import sentences
from transept.speech.timing.words import WordTiming, merge_punctuation, place_words
from transept.speech.vad.spans import (
    BATCHED_MIN_SILENCE_MS,
    SAMPLE_RATE,
    Span,
    pack,
    padded,
    silence_between,
    speech_spans,
)

if TYPE_CHECKING:
    from torch import Tensor

LONGEST_CHAIN = 4  # windows; longer ones were no more accurate
FEWEST_CHAINS = 3  # beside each other, where there are as many windows
LONGEST_WORD = 1.5  # seconds; in 36 minutes of speech it was 1.0, with a sentence left out 1.8


@dataclass(frozen=True)
class SpokenWindow:
    """Stretches of speech that are decoded as one, at most the model's window together.

    spans: samples at which someone speaks. kept: the same with some of the silence around them. prefix: how its text
    begins.
    """

    spans: tuple[Span, ...]
    kept: tuple[Span, ...]
    prefix: str | None


def transcribe(
    model: SpeechModel, waveform: Waveform, options: TranscriptionOptions
) -> Generator[Any, Any, tuple[Language, list[Segment]]]:
    """A job: one recording. Returns its language and its segments, in order of time.

    waveform: float32 [samples] at the family's sample rate, of any length.

    With condition_on_previous_text a recording of many windows is decoded in chains: each window of a chain has the
    text of those before it as prompt, and the chains run beside each other.
    """
    recording = _Recording(model, waveform, options)
    windows = yield Offload(lambda: list(recording.windows()))
    language = yield from recording.language(windows)
    size = 1
    if options.condition_on_previous_text:
        size = max(1, min(math.ceil(len(windows) / FEWEST_CHAINS), LONGEST_CHAIN))
    chains = (windows[first : first + size] for first in range(0, len(windows), size))
    found = yield Gather(recording.chain(chain, language.code) for chain in chains)
    segments = [segment for of_chain in found for segment in of_chain]
    return language, [dataclasses.replace(segment, id=index) for index, segment in enumerate(segments)]


class _Recording:
    """One recording on its way through batched mode."""

    def __init__(self, model: SpeechModel, waveform: Waveform, options: TranscriptionOptions) -> None:
        if model.spec.sample_rate != SAMPLE_RATE:
            raise ParameterError(
                f"voice activity is found at {SAMPLE_RATE} Hz, and this model takes {model.spec.sample_rate} Hz; "
                "leave batched False"
            )
        self.model, self.waveform, self.options = model, waveform, options
        self.decoding = dataclasses.replace(options, without_timestamps=True)

    def windows(self) -> Iterator[SpokenWindow]:
        """The windows, in order of time; none reaches from one of clip_timestamps' stretches into the next."""
        frame = SAMPLE_RATE // self.model.fps  # samples
        room = self.model.window_frames * frame  # samples
        given, min_silence = self.options.vad_options, self.options.vad_options.min_silence_duration_ms
        pad = min(round(given.speech_pad_ms * SAMPLE_RATE / 1000), room // 4)  # samples
        vad_options = dataclasses.replace(
            given,
            min_silence_duration_ms=BATCHED_MIN_SILENCE_MS if min_silence is None else min_silence,
            max_speech_duration_s=min(given.max_speech_duration_s, (room - 2 * pad) / SAMPLE_RATE),
            speech_pad_ms=0,
        )
        prefix = self.options.prefix
        for begin, end in clips(self.options, len(self.waveform) // frame, self.model.fps):
            clip = self.waveform[begin * frame : end * frame]
            spans = speech_spans(clip, vad_options)
            kept = padded(spans, pad, len(clip))
            for first, last in pack(spans, kept, room):
                yield SpokenWindow(
                    _moved(spans[first:last], begin * frame), _moved(kept[first:last], begin * frame), prefix
                )
                prefix = None

    def language(self, windows: list[SpokenWindow]) -> Generator[Any, Any, Language]:
        """A job: the language that the user named, or else the recording's, from its first windows."""
        import torch

        first = windows[: self.options.language_detection_segments]
        whole = [
            torch.nn.functional.pad(features, (0, self.model.window_frames - features.shape[1]))
            for features in map(self.features, first)
        ]
        features = torch.cat(whole, dim=1) if whole else self.model.features(self.waveform[:0])
        return (yield from recording_language(self.model, features, self.options))

    def features(self, window: SpokenWindow) -> Tensor:
        """[channels, up to window_frames]: what is heard of a window."""
        return self.model.window_features(np.concatenate([self.waveform[start:end] for start, end in window.kept]))

    def chain(self, windows: list[SpokenWindow], language: str) -> Generator[Any, Any, list[Segment]]:
        """A job: the segments of windows of which each has the text before it as prompt."""
        model, options = self.model, self.options
        earlier = EarlierText(model, options)
        segments: list[Segment] = []
        waiting = deque((window, True) for window in windows)
        while waiting:
            window, whole = waiting.popleft()
            features = self.features(window)
            if options.multilingual:
                language = (yield from window_language(model, features)).code
            decoded = yield from decode_window(
                model,
                features,
                self.decoding,
                language=language,
                previous_tokens=earlier.prompt() if whole else [],
                prefix=window.prefix,
            )
            found: list[Segment] = []
            if decoded.text and not is_silent(decoded, options):
                timings = yield from self.timings(features, decoded, language)
                if whole and (parts := _parts(window, timings)):
                    waiting.extendleft((part, False) for part in reversed(parts))
                    continue
                found = self.segments(window, features, decoded, timings, language)
                earlier.add(found, decoded.temperature)
            segments += found
            yield Found(found, window.kept[-1].end / SAMPLE_RATE)
        return segments

    def timings(self, features: Tensor, decoded: DecodedWindow, language: str) -> Generator[Any, Any, list[WordTiming]]:
        """A job: the words of a window; none where nobody asks for times or the model cannot tell them."""
        model, options = self.model, self.options
        if not options.word_timestamps and (options.without_timestamps or not model.alignment_heads):
            return []
        text = [token for token in decoded.tokens if token in model.text_tokens]  # a draw may hold timestamps, too
        return (yield from time_words(model, features, features.shape[1], text, options, language=language))

    def segments(
        self,
        window: SpokenWindow,
        features: Tensor,
        decoded: DecodedWindow,
        timings: list[WordTiming],
        language: str,
    ) -> list[Segment]:
        """A window's text cut into segments, with the recording's times."""
        model, options = self.model, self.options
        num_frames = features.shape[1]
        clock = Clock(window.kept, SAMPLE_RATE)
        whole = Segment(
            id=0,
            seek=window.kept[0].start * model.fps // SAMPLE_RATE,
            start=0.0,
            end=num_frames / model.fps,
            text=model.decode(decoded.tokens),
            tokens=decoded.tokens,
            temperature=decoded.temperature,
            avg_logprob=decoded.avg_logprob,
            compression_ratio=decoded.compression_ratio,
            no_speech_prob=decoded.no_speech_prob,
            language=language if options.multilingual else None,
        )
        words = merge_punctuation(timings, options.prepend_punctuations, options.append_punctuations)
        if not words:
            return [clock.restored(whole)]
        middles = [clock.time((word.start + word.end) / 2, after_pause=True) for word in words]
        cut = [words] if options.without_timestamps else list(sentences(words, silence_between(window.spans, middles)))
        tokens = [[token for word in sentence for token in word.tokens] for sentence in cut]
        segments = place_words(
            [
                dataclasses.replace(
                    whole, start=sentence[0].start, end=sentence[-1].end, tokens=own, text=model.decode(own)
                )
                for sentence, own in zip(cut, tokens, strict=True)
            ],
            timings,
            num_text_tokens=[len(own) for own in tokens],
            time_offset=0.0,
            last_speech_timestamp=0.0,
            prepend_punctuations=options.prepend_punctuations,
            append_punctuations=options.append_punctuations,
        )
        restored = [clock.restored(segment) for segment in segments]
        if options.word_timestamps:
            return restored
        return [dataclasses.replace(segment, words=None) for segment in restored]


def _parts(window: SpokenWindow, timings: list[WordTiming]) -> list[SpokenWindow]:
    """The window cut before the first stretch of speech of which the words leave something out; empty if none does."""
    clock = Clock(window.kept, SAMPLE_RATE)
    begins = [clock.time(word.start, after_pause=True) for word in timings]
    for index, (start, end) in enumerate(window.spans):
        first, last = start / SAMPLE_RATE, end / SAMPLE_RATE
        times = [first, *(time for time in begins if first <= time <= last), last]
        if timings and len(window.spans) > 1 and max(b - a for a, b in pairwise(times)) > LONGEST_WORD:
            cut = index or 1
            return [
                SpokenWindow(window.spans[:cut], window.kept[:cut], window.prefix),
                SpokenWindow(window.spans[cut:], window.kept[cut:], None),
            ]
    return []


def _moved(spans: list[Span], by: int) -> tuple[Span, ...]:
    return tuple(Span(start + by, end + by) for start, end in spans)
