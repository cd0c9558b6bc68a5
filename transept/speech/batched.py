"""Batched mode: a recording cut where nobody speaks, its windows decoded beside each other.

A window knows nothing of the others, so those of one recording and of many share the engine's batch; each has its own
language where that is asked for, its own thresholds and its own fallback. Transcriber calls `transcribe`, which takes
and gives what that of `transept.speech.sequential` does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transept.errors import ParameterError
from transept.multimodal.audio import Waveform
from transept.speech.conversation import Found, Together
from transept.speech.decoding import DecodedWindow, decode_window, is_silent
from transept.speech.language import Language, recording_language, window_language
from transept.speech.options import TranscriptionOptions
from transept.speech.segmentation import Window, cut_segments
from transept.speech.sequential import clips
from transept.speech.speech_model import SpeechModel
from transept.speech.transcript import Segment
from transept.speech.vad import BATCHED_MIN_SILENCE_MS, SAMPLE_RATE, Span, pack, speech_spans
from transept.speech.window_words import add_words

if TYPE_CHECKING:
    from torch import Tensor

REST = 1.0  # seconds of speech after a window's last timestamp that are worth another look


@dataclass(frozen=True)
class SpokenWindow:
    """A stretch of the recording of at most the model's window, and where someone speaks in it.

    begin, end: frames. spans: samples, all within it. silent_since: frame at which the speech before it ended.
    """

    begin: int
    end: int
    spans: tuple[Span, ...]
    silent_since: int


def transcribe(
    model: SpeechModel, waveform: Waveform, options: TranscriptionOptions
) -> Generator[Any, Any, tuple[Language, list[Segment]]]:
    """A job: one recording. Returns its language and its segments, in order of time.

    waveform: float32 [samples] at the family's sample rate, of any length.
    Every window is a beginning of its own: it gets the initial prompt. Only the first one gets the prefix.
    """
    recording = _Recording(model, waveform, options)
    windows = list(recording.windows())
    language = yield from recording.language(windows)
    jobs = (recording.transcribe(window, language, first=index == 0) for index, window in enumerate(windows))
    found = yield Together(jobs)
    segments = [segment for of_window in found for segment in of_window]
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
        self.frame = SAMPLE_RATE // model.fps  # samples
        prompt = options.initial_prompt
        self.initial_prompt = [] if prompt is None else model.encode_prompt(prompt)
        given = options.vad_options
        self.vad_options = dataclasses.replace(
            given,
            min_silence_duration_ms=(
                BATCHED_MIN_SILENCE_MS if given.min_silence_duration_ms is None else given.min_silence_duration_ms
            ),
            max_speech_duration_s=min(given.max_speech_duration_s, model.window_frames / model.fps),
        )

    def windows(self) -> Iterator[SpokenWindow]:
        """The windows, in order and apart from each other, each from a span's start to a span's end."""
        silent_since = 0
        for begin, end in clips(self.options, len(self.waveform) // self.frame, self.model.fps):
            offset = begin * self.frame
            spans = speech_spans(self.waveform[offset : end * self.frame], self.vad_options)
            placed = (Span(offset + span.start, offset + span.end) for span in spans)
            for together in pack(placed, self.model.window_frames * self.frame):
                first, last = together[0].start // self.frame, together[-1].end // self.frame
                yield SpokenWindow(first, last, tuple(together), silent_since)
                silent_since = last

    def features(self, begin: int, end: int) -> Tensor:
        """Features of the frames from begin to end."""
        return self.model.features(self.waveform[begin * self.frame : end * self.frame])

    def language(self, windows: list[SpokenWindow]) -> Generator[Any, Any, Language]:
        """A job: the language that the user named, or else the recording's, from its first windows."""
        import torch

        first = windows[: self.options.language_detection_segments]
        padded = [
            torch.nn.functional.pad(features, (0, self.model.window_frames - features.shape[1]))
            for features in (self.features(window.begin, window.end) for window in first)
        ]
        features = torch.cat(padded, dim=1) if padded else self.features(0, 0)
        return (yield from recording_language(self.model, features, self.options))

    def transcribe(self, window: SpokenWindow, language: Language, first: bool) -> Generator[Any, Any, list[Segment]]:
        """A job: the segments of one window, heard again from its last timestamp on when that leaves out speech."""
        segments: list[Segment] = []
        start = window.begin
        while start < window.end:
            prefix = self.options.prefix if first and start == window.begin else None
            found, start = yield from self._listen(window, start, language, prefix)
            segments += found
            if self._speech_after(start, window.spans) < REST:
                break
        segments = list(_rising(segments, window.begin / self.model.fps, window.end / self.model.fps))
        yield Found(segments, window.end / self.model.fps)
        return segments

    def _listen(
        self, window: SpokenWindow, start: int, language: Language, prefix: str | None
    ) -> Generator[Any, Any, tuple[list[Segment], int]]:
        """Decode a window from a frame on: its segments, and the frame from which on nothing is said yet."""
        model, options = self.model, self.options
        heard = Window(start, window.end - start)
        features = self.features(start, window.end)
        if options.multilingual:
            language = yield from window_language(model, features)
        decoded = yield from decode_window(
            model,
            features,
            options,
            language=language.code,
            previous_tokens=self.initial_prompt,
            prefix=prefix,
        )
        if is_silent(decoded, options):
            return [], window.end
        cut = cut_segments(
            model, heard, _closed(model, heard, decoded), language.code if options.multilingual else None
        )
        segments = [segment for segment in cut.segments if segment.text.strip()]
        if options.word_timestamps:
            segments = yield from add_words(
                model,
                features,
                heard,
                segments,
                options,
                language=language.code,
                last_speech=window.silent_since / model.fps,
            )
        return segments, cut.next_start

    def _speech_after(self, start: int, spans: Iterable[Span]) -> float:
        """Seconds of speech in a window from a frame on, without the silence that the last span is padded with."""
        samples = sum(max(0, span.end - max(span.start, start * self.frame)) for span in spans)
        return samples / SAMPLE_RATE - self.vad_options.speech_pad_ms / 1000


def _closed(model: SpeechModel, window: Window, decoded: DecodedWindow) -> DecodedWindow:
    """The decoded window; where its text ends without a timestamp, the window's end is given to it.

    Sequential mode leaves such a text out and hears it again in the next window. Here no window follows on it.
    """
    tokens = decoded.tokens
    first_timestamp = model.tokens.first_timestamp
    complete = len(tokens) < model.max_positions // 2
    if first_timestamp is None or not tokens or model.is_timestamp(tokens[-1]) or not complete:
        return decoded
    if not any(model.is_timestamp(token) for token in tokens):
        return decoded
    end = first_timestamp + round(window.size / model.fps / model.spec.seconds_per_timestamp)
    return dataclasses.replace(decoded, tokens=[*tokens, end])


def _rising(segments: Iterable[Segment], begin: float, end: float) -> Iterator[Segment]:
    """The segments with times that rise and stay between two times; so are their words'."""
    for segment in segments:
        words = segment.words
        if words is not None:
            words, before = [], begin
            for word in segment.words or ():
                start = min(max(word.start, before), end)
                before = min(max(word.end, start), end)
                words.append(dataclasses.replace(word, start=start, end=before))
        start = min(max(segment.start, begin), end)
        begin = min(max(segment.end, start), end)
        yield dataclasses.replace(segment, start=start, end=begin, words=words)
