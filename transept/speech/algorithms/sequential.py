"""Sequential mode: window after window, each beginning where the last one's timestamps end.

openai-whisper's algorithm (``transcribe.py``), with its results on the same weights. `transept.speech.recording` calls
`decode_windows`. Where openai-whisper goes astray this does not: a window without any sound is not decoded, a clip ends
with the recording at the latest, and no window begins where the last one did; nothing is said after the sound's end;
and where somebody speaks and no segment covers it, that is heard again, if the language may have changed, or told.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections.abc import Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from transept.core.jobs import Offload
from transept.multimodal.waveforms import Waveform
from transept.speech.algorithms.coverage import (
    DECODED_AGAIN,
    LONGEST_GAP,
    Heard,
    Stretch,
    known_within,
    spoken_within,
    uncovered,
)
from transept.speech.algorithms.decoding import DecodedWindow, decode_window
from transept.speech.algorithms.hallucination import last_word_end, skip_hallucinations
from transept.speech.algorithms.language import window_language
from transept.speech.algorithms.language_changes import LIKELY, is_certain, language_runs, spans_between_pauses
from transept.speech.algorithms.prompt import EarlierText
from transept.speech.algorithms.segmentation import CutWindow, Window, audible, cleared, cut_segments
from transept.speech.algorithms.window_words import add_words
from transept.speech.events import Found
from transept.speech.options import TranscriptionOptions
from transept.speech.segments import Segment
from transept.speech.speech_model import SpeechModel
from transept.speech.timing.timeline import Timeline
from transept.speech.timing.turns import cut_between_words
from transept.speech.vad.spans import SAMPLE_RATE, Span

if TYPE_CHECKING:
    from torch import Tensor

TOLERANCE = 0.5  # seconds by which a model's timestamps may miss a pause


def decode_windows(
    model: SpeechModel,
    waveform: Waveform,
    features: Tensor,
    language: str,
    options: TranscriptionOptions,
    timeline: Timeline,
    speech: Sequence[Span] | None = None,
    cuts: Sequence[float] = (),
) -> Generator[Any, Any, Heard]:
    """A job that decodes a recording window by window.

    waveform: float32 [samples]. features: of all of it, [channels, frames]. language: code. timeline: maps times of
    segments and progress to the recording. speech: spans of speech, in samples of the waveform; speech that no segment
    covers is decoded again. None: look for speech in the gaps between segments, and decode it again with
    ``multilingual``. cuts: seconds, rising, at which silence was cut out of the waveform;
    segments are divided there.
    """
    num_frames, fps = features.shape[1], model.fps
    walk = _Walk(model, waveform, features, language, options, cuts)
    second = _SecondHearing(model, waveform, features, language, options, speech, cuts)
    segments: list[Segment] = []
    for start, end in options.clips(num_frames, fps):
        clip, covered = Window(start, end - start), start / fps  # seconds
        while start < end:
            window = Window(start, min(walk.chunk, end - start))
            kept, start = yield from walk.window(window)
            found: list[Segment] = []
            for segment in audible(kept, window, clip, fps):
                if segment.text:
                    found += yield from second.hear(covered, segment.start)
                    covered = max(covered, segment.end)
                found.append(segment)
            if start >= end:
                found += yield from second.hear(covered, end / fps)
            found = [
                timeline.restored(dataclasses.replace(segment, id=index))
                for index, segment in enumerate(found, len(segments))
            ]
            segments += found
            reached = min(num_frames, start) / fps
            if second.decodes and start < end:
                reached = min(reached, covered)  # what follows may be heard again
            yield Found(found, timeline.time(reached, after_pause=False))
    missed = [
        (timeline.time(begin, after_pause=True), timeline.time(end, after_pause=False)) for begin, end in second.missed
    ]
    return Heard(segments, missed, walk.num_dropped)


class _SecondHearing:
    """Decodes speech that no segment covers again, in auto mode and with ``multilingual``; otherwise only records it.

    missed: stretches of speech without words, in seconds of the features.
    """

    def __init__(
        self,
        model: SpeechModel,
        waveform: Waveform,
        features: Tensor,
        language: str,
        options: TranscriptionOptions,
        speech: Sequence[Span] | None,
        cuts: Sequence[float],
    ) -> None:
        self.model, self.waveform, self.features, self.language = model, waveform, features, language
        self.options = dataclasses.replace(options, prefix=None)
        self.speech, self.cuts = speech, cuts
        self.decodes = options.multilingual or speech is not None
        self.shortest = DECODED_AGAIN if speech is None else 0.0  # seconds
        self.missed: list[Stretch] = []

    def hear(self, begin: float, end: float) -> Generator[Any, Any, list[Segment]]:
        """A job: the segments of a stretch that no segment covers, if it is long and somebody speaks in it."""
        if end - begin <= LONGEST_GAP or self.model.spec.sample_rate != SAMPLE_RATE:
            return []
        if self.speech is None:
            vad_options = self.options.vad_options
            spoken = yield Offload(partial(spoken_within, self.waveform, (begin, end), vad_options))
        else:
            spoken = known_within(self.speech, (begin, end))
        found: list[Segment] = []
        for stretch in spoken:
            decodes = self.decodes and stretch[1] - stretch[0] > self.shortest
            again = (yield from self._walk(*stretch)) if decodes else []
            self.missed += uncovered([stretch], again)
            found += again
        return found

    def _walk(self, begin: float, end: float) -> Generator[Any, Any, list[Segment]]:
        """A job: the segments of a stretch as if nothing had been said before."""
        fps, segments = self.model.fps, []
        walk = _Walk(self.model, self.waveform, self.features, self.language, self.options, self.cuts)
        start, last = round(begin * fps), round(end * fps)
        clip = Window(start, last - start)
        while start < last:
            window = Window(start, min(walk.chunk, last - start))
            kept, start = yield from walk.window(window)
            segments += audible(kept, window, clip, fps)
        return [dataclasses.replace(segment, end=min(segment.end, end)) for segment in segments]


class _Walk:
    """What one window leaves for the next: what was said, when the last word ended, whether the prefix is still due.

    language: code; with ``multilingual`` that of the last window, None before the first.
    """

    def __init__(
        self,
        model: SpeechModel,
        waveform: Waveform,
        features: Tensor,
        language: str,
        options: TranscriptionOptions,
        cuts: Sequence[float],
    ) -> None:
        self.model, self.waveform, self.features, self.options = model, waveform, features, options
        self.cuts = cuts
        self.language = None if options.multilingual else language
        self.earlier = EarlierText(model, options)
        self.chunk = model.chunk_frames(options)
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
        """A job: the window up to where its language changes, and what was decoded of it on the way. Sets language."""
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
        """A job: what a window in one language says."""
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
        """A job: what `window` gives, of what was decoded. features: the window's."""
        model, options, language = self.model, self.options, self.language
        assert language is not None
        self.num_dropped += bool(decoded.text) and decoded.is_silent(options)
        if decoded.is_silent(options) or (model.tokenizer.control.no_speech is None and not decoded.text):
            return [], window.start + window.size
        cut = cut_segments(model, window, decoded, language if options.multilingual else None)
        kept, next_start = cut.segments, cut.next_start
        if options.word_timestamps:
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
        if any(self._spans_cut(segment) for segment in kept):
            kept = yield from self._cut(kept, window, features, decoded)
        kept = cleared(kept)
        self.earlier.add(kept, decoded.temperature)
        return kept, next_start

    def _spans_cut(self, segment: Segment) -> bool:
        """True if a segment reaches over a place where silence was cut out."""
        first = bisect_right(self.cuts, segment.start + TOLERANCE)
        return first < len(self.cuts) and self.cuts[first] < segment.end - TOLERANCE

    def _cut(
        self, segments: list[Segment], window: Window, features: Tensor, decoded: DecodedWindow
    ) -> Generator[Any, Any, list[Segment]]:
        """A job that divides a window's segments where silence was cut out, between words."""
        model, timed = self.model, segments
        if not self.options.word_timestamps:
            if not model.alignment_heads or self.language is None:
                return segments
            timed = yield from add_words(
                model,
                features,
                segments,
                self.options,
                language=self.language,
                time_offset=window.start / model.fps,
                last_speech=self.last_speech,
                context=decoded.context,
            )
        found: list[Segment] = []
        for segment, with_words in zip(segments, timed, strict=True):
            if not self._spans_cut(segment):
                found.append(segment)
                continue
            parts = cut_between_words(
                with_words, lambda start, end: bisect_right(self.cuts, (start + end) / 2), model.tokenizer.decode
            )
            for _, part in parts:
                end = max(part.end, part.start + model.spec.seconds_per_timestamp)
                found.append(dataclasses.replace(part, end=end, words=segment.words and part.words))
        return found

    def _after_words(self, cut: CutWindow, window: Window) -> tuple[list[Segment] | None, int]:
        """What is kept of a window, now that its words are known, and where the next one begins: never where it does.

        None: see skip_hallucinations.
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
    """Whether a window has no sound at all. There are no words in it, but models make some up."""
    return bool(features.amin() == features.amax())
