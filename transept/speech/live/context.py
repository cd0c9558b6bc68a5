"""Context: the text before an utterance, which prompts the decoder for the next words."""

from __future__ import annotations

from collections.abc import Sequence

from transept.speech.options import TranscriptionOptions
from transept.speech.speech_model import SpeechModel

MOST_TOKENS = 60  # of earlier text: two or three sentences; each token costs a decoder row in every pass


class Context:
    """The tokens of hotwords and of the text so far; none if the model has no prompt of earlier text."""

    def __init__(self, model: SpeechModel, options: TranscriptionOptions) -> None:
        self._start = model.tokenizer.control.start_of_previous
        self._keeps = options.condition_on_previous_text
        self._most_positions = model.max_positions // 2
        self._hotwords = model.hotword_tokens(options.hotwords) if options.hotwords else []
        self._tokens: list[int] = []
        if options.initial_prompt is not None:
            self._tokens = list(model.tokenizer.encode_prompt(options.initial_prompt))[-model.max_prompt_tokens :]

    def add(self, tokens: Sequence[int]) -> None:
        """Add text whose audio later passes do not read. Does nothing without condition_on_previous_text."""
        if self._keeps:
            self._tokens = [*self._tokens, *tokens][-MOST_TOKENS:]

    def clear(self) -> None:
        """Forget the text so far, because it may have misled the decoder, or a long pause follows it."""
        self._tokens = []

    def prompt(self, num_others: int) -> list[int]:
        """Return the tokens before the transcript. num_others: number of tokens after them in the decoder prompt."""
        room = self._most_positions - num_others - 1
        earlier = [*self._hotwords, *self._tokens]
        if self._start is None or not earlier or room <= 0:
            return []
        return [self._start, *earlier[-room:]]
