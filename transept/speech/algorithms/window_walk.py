"""Decode one window after another: what each window gives, and where the next one begins.

`sequential.decode_windows` calls `Walk.window`.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from transept.core.jobs.job import Offload
from transept.multimodal.waveforms import Waveform
from transept.speech.algorithms.decoding import DecodedWindow, decode_window
from transept.speech.algorithms.hallucination import last_word_end, skip_hallucinations
from transept.speech.algorithms.language import window_language
from transept.speech.algorithms.language_changes import LIKELY, is_certain, language_runs, spans_between_pauses
from transept.speech.algorithms.prompt import EarlierText
from transept.speech.algorithms.segmentation import CutWindow, Window, cleared, cut_segments
from transept.speech.algorithms.window_words import add_words
from transept.speech.options import TranscriptionOptions
from transept.speech.segments import Segment
from transept.speech.speech_model import SpeechModel
from transept.speech.timing.turns import cut_between_words
from transept.speech.vad.spans import SAMPLE_RATE, Span

if TYPE_CHECKING:
    from torch import Tensor

TOLERANCE = 0.5  # seconds by which a model's timestamps may miss a pause


@dataclass(frozen=True)
class Sound:
    """The input of `sequential.decode_windows`, whose parameters the fields are."""

    model: SpeechModel
    waveform: Waveform
    features: Tensor
    speech: Sequence[Span] | None
    cuts: tuple[float, ...]

    def times_words(self, options: TranscriptionOptions) -> bool:
        """Return True if the words of each window are timed."""
        return options.word_timestamps or (self.speech is not None and bool(self.model.alignment_heads))

    def divided(self, segments: list[Segment]) -> list[Segment]:
        """Divide segments between words where silence was cut out. Segments without words stay whole."""
        found: list[Segment] = []
        for segment in segments:
            if not segment.words or not self._spans_cut(segment):
                found.append(segment)
                continue
            parts = cut_between_words(
                segment, lambda start, end: bisect_right(self.cuts, (start + end) / 2), self.model.tokenizer.decode
            )
            for _, part in parts:
                end = max(part.end, part.start + self.model.spec.seconds_per_timestamp)
                found.append(dataclasses.replace(part, end=end))
        return found

    def _spans_cut(self, segment: Segment) -> bool:
        """Return True if a segment reaches over a place where silence was cut out."""
        first = bisect_right(self.cuts, segment.start + TOLERANCE)
        return first < len(self.cuts) and self.cuts[first] < segment.end - TOLERANCE


class Walk:
    """Decodes windows in turn, and keeps what one leaves for the next: its text, its last word's end, its language.

    language: code; with ``multilingual`` the last window's language, or None before the first window.
    """

    def __init__(self, sound: Sound, language: str, options: TranscriptionOptions) -> None:
        self.sound, self.options = sound, options
        self.model, self.waveform, self.features = sound.model, sound.waveform, sound.features
        self.language = None if options.multilingual else language
        self.earlier = EarlierText(self.model, options)
        self.chunk = self.model.chunk_frames(options)
        self.prefix = options.prefix
        self.last_speech = 0.0  # seconds
        self.num_dropped = 0  # windows whose text a threshold dropped

    def window(self, window: Window) -> Generator[Any, Any, tuple[list[Segment], int]]:
        """A job: the segments of a window, in the features' time, and the frame at which the next one begins.

        With ``multilingual`` a window ends where its language changes.
        """
        features, decoded = self._features(window), None
        if _is_flat(features):
            return [], window.start + window.size
        if self.options.multilingual:
            window, decoded = yield from self._in_one_language(window, features)
            features = self._features(window)
        if decoded is None:
            decoded = yield from self._decoded(features)
        self.prefix = None
        kept, next_start = yield from self._kept(window, features, decoded)
        if not self.options.multilingual:
            return kept, next_start
        end = window.start + window.size
        last = end / self.model.fps
        kept = [dataclasses.replace(each, end=min(each.end, last)) for each in kept if each.start < last]
        return kept, min(next_start, end)

    def _features(self, window: Window) -> Tensor:
        return self.features[:, window.start : window.start + window.size].contiguous()

    def _in_one_language(
        self, window: Window, features: Tensor
    ) -> Generator[Any, Any, tuple[Window, DecodedWindow | None]]:
        """A job: the window up to where its language changes, and its text if already decoded. Sets language."""
        whole = yield from window_language(self.model, features, self.options)
        before, self.language = self.language, whole.code
        decoded = (yield from self._decoded(features)) if is_certain(whole) else None
        if (decoded is not None and decoded.avg_logprob >= LIKELY) or self.model.spec.sample_rate != SAMPLE_RATE:
            return window, decoded
        per_frame = SAMPLE_RATE // self.model.fps  # samples
        sound = self.waveform[window.start * per_frame : (window.start + window.size) * per_frame]
        spans = yield Offload(partial(spans_between_pauses, sound, self.options.vad_options))
        runs = yield from language_runs(
            self.model, whole, spans, lambda run: sound[spans[run.start].start : spans[run.stop - 1].end], before
        )
        self.language, first = runs[0]
        if first.stop < len(spans):
            pause = (spans[first.stop - 1].end + spans[first.stop].start) // 2
            return dataclasses.replace(window, size=max(1, pause // per_frame)), None
        return window, decoded if self.language == whole.code else None

    def _decoded(self, features: Tensor) -> Generator[Any, Any, DecodedWindow]:
        """A job that decodes a window in one language."""
        assert self.language is not None
        previous = self.earlier.prompt(self.language if self.options.multilingual else None)
        return (
            yield from decode_window(
                self.model,
                features,
                self.options,
                language=self.language,
                previous_tokens=previous,
                prefix=self.prefix,
            )
        )

    def _kept(
        self, window: Window, features: Tensor, decoded: DecodedWindow
    ) -> Generator[Any, Any, tuple[list[Segment], int]]:
        """A job that makes segments of a decoded window, as `window` returns them. features: the window's."""
        model, options, language = self.model, self.options, self.language
        assert language is not None
        self.num_dropped += bool(decoded.text) and decoded.is_silent(options)
        if decoded.is_silent(options) or (model.tokenizer.control.no_speech is None and not decoded.text):
            return [], window.start + window.size
        cut = cut_segments(model, window, decoded, language if options.multilingual else None)
        kept, next_start = cut.segments, cut.next_start
        if self.sound.times_words(options):
            timed = yield from add_words(
                model,
                features,
                cut.segments,
                options,
                language=language,
                time_offset=window.start / model.fps,
                last_speech=self.last_speech,
                context=decoded.context,
            )
            trusted, next_start = self._after_words(dataclasses.replace(cut, segments=timed), window)
            if trusted is None:
                self.num_dropped += 1
                return [], next_start
            kept, last_end = trusted, last_word_end(trusted)
            self.last_speech = self.last_speech if last_end is None else last_end
        kept = cleared(self.sound.divided(kept))
        self.earlier.add(kept, decoded.temperature)
        return kept, next_start

    def _after_words(self, cut: CutWindow, window: Window) -> tuple[list[Segment] | None, int]:
        """Return the segments to keep of a window with words, and the frame at which the next window begins.

        The segments are None where `skip_hallucinations` says so.
        """
        model, threshold = self.model, self.options.hallucination_silence_threshold
        spoken = last_word_end(cut.segments)
        if not cut.ends_in_silence and spoken is not None and spoken > window.start / model.fps:
            rest = (window.start + self.chunk) / model.fps - spoken  # seconds
            rest_is_short = threshold is not None and rest <= threshold
            next_start = window.start + window.size if rest_is_short else round(spoken * model.fps)
            cut = dataclasses.replace(cut, next_start=next_start)
        if threshold is None:
            return cut.segments, max(cut.next_start, window.start + 1)
        kept, next_start = skip_hallucinations(
            cut,
            window,
            model,
            threshold=threshold,
            chunk=self.chunk,
            num_frames=self.features.shape[1],
            last_speech=self.last_speech,
        )
        return kept, max(next_start, window.start + 1)


def _is_flat(features: Tensor) -> bool:
    """Return True if a window is digital silence, for which models make up words."""
    return bool(features.amin() == features.amax())
