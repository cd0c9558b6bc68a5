"""The prompt of a window: what was said before it, the control tokens that open a transcript, and how its text begins.

`decode_window` asks for `window_prompt`; the modes keep an EarlierText for a run of windows. The rules are
openai-whisper's (``transcribe.py``, ``decoding.py``), prefix and hotwords faster-whisper's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transept.speech.algorithms.source import Source
from transept.speech.options import TranscriptionOptions
from transept.speech.segments import Segment
from transept.speech.speech_model import SpeechModel


@dataclass(frozen=True)
class WindowPrompt:
    """Three runs of tokens: earlier text, what opens a transcript, and the prefix with which its text begins."""

    earlier: list[int]
    opening: list[int]
    prefix: list[int]

    @property
    def tokens(self) -> list[int]:
        """All of them: the decoder prompt."""
        return [*self.earlier, *self.opening, *self.prefix]


def window_prompt(heard: Source, previous_tokens: Sequence[int], prefix: str | None) -> WindowPrompt:
    """The prompt of one window. previous_tokens: what was said before. prefix: how the text begins."""
    model, options, timestamps = heard.model, heard.options, not heard.options.without_timestamps
    opening = model.opening_tokens(heard.language, options, timestamps=timestamps)
    begin = model.tokenizer.encode_prompt(prefix)[: max_prompt_tokens(model)] if prefix else []
    first_timestamp = model.tokenizer.control.first_timestamp
    if prefix and timestamps and first_timestamp is not None:
        begin = [first_timestamp, *begin]
    room = model.max_positions - len(opening) - len(begin) - 1
    hotwords = options.hotwords if not prefix else None
    return WindowPrompt(_earlier_tokens(model, hotwords, previous_tokens, room), opening, begin)


def max_prompt_tokens(model: SpeechModel) -> int:
    """How much earlier text a prompt holds at most: half of the positions, but for the token before it."""
    return model.max_positions // 2 - 1


def _earlier_tokens(model: SpeechModel, hotwords: str | None, previous_tokens: Sequence[int], room: int) -> list[int]:
    """What stands before the opening tokens: hotwords, then the end of the earlier text, within limit and room."""
    limit = min(max_prompt_tokens(model), room - 1)
    words = model.tokenizer.encode_prompt(hotwords)[:limit] if hotwords else []
    left = limit - len(words)
    earlier = [*words, *previous_tokens[-left:]] if left > 0 else words
    start_of_previous = model.tokenizer.control.start_of_previous
    return [] if not earlier or start_of_previous is None else [start_of_previous, *earlier]


class EarlierText:
    """What was said so far, and how much of it is the next window's prompt.

    initial: the initial prompt's tokens, which count as said before the recording.
    """

    def __init__(self, model: SpeechModel, options: TranscriptionOptions) -> None:
        self.options = options
        self.limit = max_prompt_tokens(model)
        self.initial = [] if options.initial_prompt is None else model.tokenizer.encode_prompt(options.initial_prompt)
        self.tokens = list(self.initial)
        self.begin = 0  # index in tokens of the first that a prompt may hold
        self.language: str | None = None  # of the last segment, where it is told

    def prompt(self, language: str | None = None) -> list[int]:
        """The tokens before the next window; the decoding cuts them to its limit from the left.

        language: the window's. After text in another one a model goes on in that, so only an initial prompt that is
        carried is left.
        """
        if language is not None and self.language not in (language, None):
            return list(self.initial) if self.options.carry_initial_prompt else []
        if not self.options.carry_initial_prompt:
            return self.tokens[self.begin :]
        said = self.tokens[max(len(self.initial), self.begin) :]
        room = max(0, self.limit - len(self.initial))
        return [*self.initial, *said[len(said) - min(room, len(said)) :]]

    def add(self, segments: Sequence[Segment], temperature: float) -> None:
        """Take in what a window held, decoded at a temperature."""
        self.tokens += [token for segment in segments for token in segment.tokens]
        language = segments[-1].language if segments else self.language
        if language != self.language and self.language is not None:
            self.begin = len(self.tokens) - sum(len(segment.tokens) for segment in segments)
        self.language = language
        if not self.options.condition_on_previous_text or temperature > self.options.prompt_reset_on_temperature:
            self.begin = len(self.tokens)
