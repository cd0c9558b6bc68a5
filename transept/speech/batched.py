"""Batched mode: a recording cut where nobody speaks, its windows decoded beside each other.

A window knows nothing of the others, so those of one recording and of many share the engine's batch; each has its own
language where that is asked for, its own thresholds and its own fallback. Transcriber calls `transcribe`, which takes
and gives what that of `transept.speech.sequential` does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from transept.errors import ParameterError
from transept.multimodal.audio import Waveform
from transept.speech.conversation import Found, Together
from transept.speech.decoding import DecodedWindow, decode_window, is_silent
from transept.speech.language import Language, recording_language, window_language
from transept.speech.options import TranscriptionOptions
from transept.speech.segmentation import CutWindow, Window, cut_segments
from transept.speech.sequential import EarlierText, clips
from transept.speech.speech_model import SpeechModel
from transept.speech.transcript import Segment
from transept.speech.vad import BATCHED_MIN_SILENCE_MS, SAMPLE_RATE, Span, pack, speech_spans
from transept.speech.window_words import add_words

if TYPE_CHECKING:
    from torch import Tensor

REST = 1.0  # seconds of speech after a window's last timestamp that are worth another look
GROUP = 16  # windows that are drafted at a time
LENGTH_TOLERANCE = 0.05  # of a window's words that a prompt may add or take away


@dataclass(frozen=True)
class SpokenWindow:
    """A stretch of the recording of at most the model's window, and where someone speaks in it.

    begin, end: frames. spans: samples, all within it, without the silence around them. silent_since: frame at which the
    speech before it ended.
    prefix: how its text begins.
    """

    begin: int
    end: int
    spans: tuple[Span, ...]
    silent_since: int
    prefix: str | None


@dataclass(frozen=True)
class Draft:
    """A window, decoded. language: the code that was told to the model. prompt: tokens of what was said before."""

    window: SpokenWindow
    features: Tensor
    language: str
    prompt: list[int]
    decoded: DecodedWindow


def transcribe(
    model: SpeechModel, waveform: Waveform, options: TranscriptionOptions
) -> Generator[Any, Any, tuple[Language, list[Segment]]]:
    """A job: one recording. Returns its language and its segments, in order of time.

    waveform: float32 [samples] at the family's sample rate, of any length.

    With condition_on_previous_text every window is decoded twice, on one run of the encoder: first without a prompt,
    then with the drafts of those before it as prompt; what is much longer or shorter than its draft is not believed.
    Without it the drafts are the result.

        drafts   | group 0 | group 1 | group 2 |         |
        results  |         | group 0 | group 1 | group 2 |      each column is in the engine at the same time
    """
    recording = _Recording(model, waveform, options)
    windows = list(recording.windows())
    language = yield from recording.language(windows)
    if options.condition_on_previous_text:
        found = yield from _in_context(recording, windows, language)
    else:
        found = yield Together(recording.alone(window, language) for window in windows)
    segments = [segment for of_window in found for segment in of_window]
    return language, [dataclasses.replace(segment, id=index) for index, segment in enumerate(segments)]


def _in_context(
    recording: _Recording, windows: list[SpokenWindow], language: Language
) -> Generator[Any, Any, list[list[Segment]]]:
    """A job: the segments of each window, decoded a second time with the drafts before it as prompt."""
    earlier = EarlierText(recording.model, recording.options)
    size = max(1, min(GROUP, recording.model.cached_windows // 3))  # so that two groups stay cached, with room to spare
    found: list[list[Segment]] = []
    drafted: list[tuple[Draft, list[int]]] = []  # of the last group, with their prompts
    for first in range(0, len(windows) + size, size):
        results = [recording.result(draft, prompt) for draft, prompt in drafted]
        known = earlier.prompt() if first else recording.initial_prompt
        drafts = [recording.draft(window, language, known) for window in windows[first : first + size]]
        answers = yield Together([*results, *drafts])
        found += answers[: len(results)]
        drafted = []
        for draft in answers[len(results) :]:
            drafted.append((draft, earlier.prompt()))
            if not is_silent(draft.decoded, recording.options):
                earlier.add(recording.cut(draft.window.begin, draft).segments, draft.decoded.temperature)
    return found


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
        self.window = model.window_frames * self.frame  # samples
        given = options.vad_options
        self.pad = min(round(given.speech_pad_ms * SAMPLE_RATE / 1000), self.window // 4)  # samples
        min_silence = given.min_silence_duration_ms
        self.vad_options = dataclasses.replace(
            given,
            min_silence_duration_ms=BATCHED_MIN_SILENCE_MS if min_silence is None else min_silence,
            max_speech_duration_s=min(given.max_speech_duration_s, (self.window - 2 * self.pad) / SAMPLE_RATE),
            speech_pad_ms=0,  # windows are padded, not the spans in them
        )

    def windows(self) -> Iterator[SpokenWindow]:
        """The windows, in order and apart from each other: neighbours share the pause between them."""
        silent_since, prefix = 0, self.options.prefix
        for clip_begin, clip_end in clips(self.options, len(self.waveform) // self.frame, self.model.fps):
            offset, after = clip_begin * self.frame, clip_end * self.frame
            spans = speech_spans(self.waveform[offset:after], self.vad_options)
            packed = pack([Span(offset + start, offset + end) for start, end in spans], self.window - 2 * self.pad)
            borders = [offset, *((one[-1].end + other[0].start) // 2 for one, other in pairwise(packed)), after]
            for together, lowest, highest in zip(packed, borders, borders[1:], strict=False):
                begin = max(together[0].start - self.pad, lowest) // self.frame
                end = min(together[-1].end + self.pad, highest) // self.frame
                yield SpokenWindow(begin, end, tuple(together), silent_since, prefix)
                silent_since, prefix = end, None

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

    def draft(self, window: SpokenWindow, language: Language, prompt: list[int]) -> Generator[Any, Any, Draft]:
        """A job: decode a window."""
        features = self.features(window.begin, window.end)
        return (yield from self._decode(window, features, language.code, prompt, window.prefix))

    def alone(self, window: SpokenWindow, language: Language) -> Generator[Any, Any, list[Segment]]:
        """A job: the segments of one window, whatever was said before it."""
        draft = yield from self.draft(window, language, self.initial_prompt)
        return (yield from self.result(draft, self.initial_prompt))

    def result(self, draft: Draft, prompt: list[int]) -> Generator[Any, Any, list[Segment]]:
        """A job: the segments of a window, heard again from its last timestamp on while that leaves out speech."""
        window = draft.window
        decoded, segments = draft, []
        if prompt != draft.prompt and not is_silent(draft.decoded, self.options):
            again = yield from self._decode(window, draft.features, draft.language, prompt, window.prefix)
            decoded = again if _says_as_much(again.decoded, draft.decoded) else draft
        start = window.begin
        while not is_silent(decoded.decoded, self.options):
            cut = self.cut(start, decoded)
            found = [segment for segment in cut.segments if segment.text.strip()]
            if self.options.word_timestamps:
                found = yield from self._add_words(start, decoded, found)
            segments += found
            start = cut.next_start
            if start >= window.end or self._speech_after(start, window.spans) < REST:
                break
            features = self.features(start, window.end)
            if self.options.condition_on_previous_text:
                prompt = [*prompt, *(token for segment in found for token in segment.tokens)]
            decoded = yield from self._decode(window, features, draft.language, prompt, None)
        segments = list(_rising(segments, window.begin / self.model.fps, window.end / self.model.fps))
        yield Found(segments, window.end / self.model.fps)
        return segments

    def cut(self, start: int, draft: Draft) -> CutWindow:
        """The segments of a window that was decoded from a frame on."""
        heard = Window(start, draft.window.end - start)
        language = draft.language if self.options.multilingual else None
        return cut_segments(self.model, heard, _closed(self.model, heard, draft.decoded), language)

    def _decode(
        self, window: SpokenWindow, features: Tensor, language: str, prompt: list[int], prefix: str | None
    ) -> Generator[Any, Any, Draft]:
        if self.options.multilingual:
            language = (yield from window_language(self.model, features)).code
        decoded = yield from decode_window(
            self.model, features, self.options, language=language, previous_tokens=prompt, prefix=prefix
        )
        return Draft(window, features, language, prompt, decoded)

    def _add_words(self, start: int, draft: Draft, segments: list[Segment]) -> Generator[Any, Any, list[Segment]]:
        return (
            yield from add_words(
                self.model,
                draft.features,
                Window(start, draft.window.end - start),
                segments,
                self.options,
                language=draft.language,
                last_speech=draft.window.silent_since / self.model.fps,
            )
        )

    def _speech_after(self, start: int, spans: Iterable[Span]) -> float:
        """Seconds of speech in a window from a frame on."""
        return sum(max(0, span.end - max(span.start, start * self.frame)) for span in spans) / SAMPLE_RATE


def _says_as_much(one: DecodedWindow, other: DecodedWindow) -> bool:
    """Whether two texts are about as long: a prompt mends words, but it may also make a model skip or repeat some."""
    lengths = [len(decoded.text.split()) for decoded in (one, other)]
    return max(lengths) - min(lengths) <= LENGTH_TOLERANCE * max(lengths)


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
