"""The prompt of a window: previous text, the control tokens that open a transcript, and the prefix of its text.

`decode_window` calls `window_prompt`; the modes keep an EarlierText for consecutive windows. The rules are
openai-whisper's (``transcribe.py``, ``decoding.py``); those for prefix and hotwords are faster-whisper's.
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
    """The tokens of earlier text, the control tokens that open a transcript, and the prefix of its text."""

    earlier: list[int]
    opening: list[int]
    prefix: list[int]

    @property
    def tokens(self) -> list[int]:
        """The decoder prompt."""
        return [*self.earlier, *self.opening, *self.prefix]


def window_prompt(heard: Source, previous_tokens: Sequence[int], prefix: str | None) -> WindowPrompt:
    """Return the prompt of one window. previous_tokens: previous text. prefix: beginning of the window's text."""
    model, options, timestamps = heard.model, heard.options, not heard.options.without_timestamps
    opening = model.opening_tokens(heard.language, options, timestamps=timestamps)
    begin = model.tokenizer.encode_prompt(prefix)[: model.max_prompt_tokens] if prefix else []
    first_timestamp = model.tokenizer.control.first_timestamp
    if prefix and timestamps and first_timestamp is not None:
        begin = [first_timestamp, *begin]
    room = model.max_positions - len(opening) - len(begin) - 1
    hotwords = options.hotwords if not prefix else None
    limit = min(model.max_prompt_tokens, room - 1)
    words = model.hotword_tokens(hotwords)[:limit] if hotwords else []
    left = limit - len(words)
    earlier = [*words, *previous_tokens[-left:]] if left > 0 else words
    start_of_previous = model.tokenizer.control.start_of_previous
    if not earlier or start_of_previous is None:
        return WindowPrompt([], opening, begin)
    return WindowPrompt([start_of_previous, *earlier], opening, begin)


class EarlierText:
    """The text so far, part of which is the next window's prompt.

    initial: the initial prompt's tokens, which count as previous text of the recording.
    """

    def __init__(self, model: SpeechModel, options: TranscriptionOptions) -> None:
        self.options = options
        self.limit = model.max_prompt_tokens
        self.initial = [] if options.initial_prompt is None else model.tokenizer.encode_prompt(options.initial_prompt)
        self.tokens = list(self.initial)
        self.begin = 0  # index of the first token that a prompt may hold
        self.language: str | None = None  # of the last segment, with ``multilingual``

    def prompt(self, language: str | None = None) -> list[int]:
        """Return the tokens before the next window. `window_prompt` cuts them to the limit from the left.

        language: the window's. After text in another language, a model continues in that language, so only a carried
        initial prompt is kept.
        """
        if language is not None and self.language not in (language, None):
            return list(self.initial) if self.options.carry_initial_prompt else []
        if not self.options.carry_initial_prompt:
            return self.tokens[self.begin :]
        said = self.tokens[max(len(self.initial), self.begin) :]
        room = max(0, self.limit - len(self.initial))
        return [*self.initial, *said[len(said) - min(room, len(said)) :]]

    def add(self, segments: Sequence[Segment], temperature: float) -> None:
        """Add the segments of a window that was decoded at a temperature."""
        self.tokens += [token for segment in segments for token in segment.tokens]
        language = segments[-1].language if segments else self.language
        if language != self.language and self.language is not None:
            self.begin = len(self.tokens) - sum(len(segment.tokens) for segment in segments)
        self.language = language
        if not self.options.condition_on_previous_text or temperature > self.options.prompt_reset_on_temperature:
            self.begin = len(self.tokens)
