"""Sequential mode: a recording window after window, each beginning where the last one's timestamps end.

openai-whisper's algorithm (``transcribe.py``), with its results on the same weights. Transcriber calls `transcribe`.
Where openai-whisper goes astray this does not: a window without any sound is not decoded, a clip ends with the
recording at the latest, and no window begins where the last one did.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Generator, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from transept.core.jobs import Offload
from transept.multimodal.audio import Waveform
from transept.speech.algorithms.decoding import decode_window, is_silent, max_prompt_tokens
from transept.speech.algorithms.hallucination import Recording, last_word_end, skip_hallucinations
from transept.speech.algorithms.language import Language, recording_language, window_language
from transept.speech.algorithms.segmentation import CutWindow, Window, cleared, cut_segments
from transept.speech.algorithms.window_words import add_words
from transept.speech.events import Found
from transept.speech.options import TranscriptionOptions
from transept.speech.segments import Segment
from transept.speech.speech_model import SpeechModel

if TYPE_CHECKING:
    from torch import Tensor


def transcribe(
    model: SpeechModel, waveform: Waveform, options: TranscriptionOptions
) -> Generator[Any, Any, tuple[Language, list[Segment]]]:
    """A job: one recording. Returns its language and its segments, in order of time.

    waveform: float32 [samples] at the family's sample rate, of any length.
    """
    features = yield Offload(partial(model.features, waveform))  # [channels, frames]
    del waveform  # hours of it would stay in memory, with their features
    num_frames = features.shape[1]
    language = yield from recording_language(model, features, options)
    earlier = EarlierText(model, options)
    segments: list[Segment] = []
    last_speech = 0.0  # seconds
    first = True
    for begin, end in clips(options, num_frames, model.fps):
        start = begin
        while start < end:
            window = Window(start, min(model.window_frames, end - start))
            # From here on `start` is the next window's.
            window_features = features[:, start : start + window.size].contiguous()
            start += window.size
            if is_flat(window_features):
                yield Found(progress_seconds=start / model.fps)
                continue
            spoken = language
            if options.multilingual:
                spoken = yield from window_language(model, window_features)
            decoded = yield from decode_window(
                model,
                window_features,
                options,
                language=spoken.code,
                previous_tokens=earlier.prompt(),
                prefix=options.prefix if first else None,
            )
            first = False
            if is_silent(decoded, options) or (model.tokens.no_speech is None and not decoded.text):
                yield Found(progress_seconds=start / model.fps)
                continue
            cut = cut_segments(model, window, decoded, spoken.code if options.multilingual else None)
            start, kept = cut.next_start, cut.segments
            if options.word_timestamps:
                kept = yield from add_words(
                    model, window_features, window, kept, options, language=spoken.code, last_speech=last_speech
                )
                recording = Recording(num_frames, model.fps, model.window_frames, last_speech)
                cut = dataclasses.replace(cut, segments=kept)
                start, trusted = _after_words(cut, window, recording, options)
                if trusted is None:
                    yield Found(progress_seconds=start / model.fps)
                    continue
                kept = trusted
                last_end = last_word_end(kept)
                last_speech = last_speech if last_end is None else last_end
            kept = [dataclasses.replace(each, id=len(segments) + i) for i, each in enumerate(cleared(kept))]
            segments += kept
            earlier.add(kept, decoded.temperature)
            yield Found(kept, min(num_frames, start) / model.fps)
    return language, segments


def clips(options: TranscriptionOptions, num_frames: int, fps: int) -> Iterator[tuple[int, int]]:
    """The stretches to transcribe, as (begin, end) in frames within the recording."""
    points = [min(round(time * fps), num_frames) for time in options.clip_timestamps] or [0]
    if len(points) % 2:
        points.append(num_frames)
    return zip(points[::2], points[1::2], strict=True)


def is_flat(features: Tensor) -> bool:
    """Whether a window has no sound at all. There are no words in it, but models make some up."""
    return bool(features.amin() == features.amax())


def _after_words(
    cut: CutWindow, window: Window, recording: Recording, options: TranscriptionOptions
) -> tuple[int, list[Segment] | None]:
    """Where the next window begins, now that the words are known, and what of this one is kept.

    None for segments: see skip_hallucinations. The next window never begins where this one does.
    """
    if not cut.ends_in_silence:
        last_end = last_word_end(cut.segments)
        if last_end is not None and last_end > window.start / recording.fps:
            cut = dataclasses.replace(cut, next_start=round(last_end * recording.fps))
    start, kept = cut.next_start, cut.segments
    if options.hallucination_silence_threshold is not None:
        trusted, start = skip_hallucinations(cut, window, recording, options.hallucination_silence_threshold)
        return max(start, window.start + 1), trusted
    return max(start, window.start + 1), kept


class EarlierText:
    """What was said so far, and how much of it is the next window's prompt.

    initial: the initial prompt's tokens, which count as said before the recording.
    """

    def __init__(self, model: SpeechModel, options: TranscriptionOptions) -> None:
        self.options = options
        self.limit = max_prompt_tokens(model)
        self.initial = [] if options.initial_prompt is None else model.encode_prompt(options.initial_prompt)
        self.tokens = list(self.initial)
        self.begin = 0  # index in tokens of the first that a prompt may hold

    def prompt(self) -> list[int]:
        """The tokens before the next window; the decoding cuts them to its limit from the left."""
        if not self.options.carry_initial_prompt:
            return self.tokens[self.begin :]
        said = self.tokens[max(len(self.initial), self.begin) :]
        room = max(0, self.limit - len(self.initial))
        return [*self.initial, *said[len(said) - min(room, len(said)) :]]

    def add(self, segments: list[Segment], temperature: float) -> None:
        """Take in what a window held, decoded at a temperature."""
        self.tokens += [token for segment in segments for token in segment.tokens]
        if not self.options.condition_on_previous_text or temperature > self.options.prompt_reset_on_temperature:
            self.begin = len(self.tokens)
