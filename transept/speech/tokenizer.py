"""SpeechTokenizer: a family's tokens as transcription reads and writes them: text, control tokens and timestamps."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from transept.registry.spec import SpeechSpec, resolve
from transept.speech.options import TranscriptionOptions

UNSPOKEN = -1  # in suppress_tokens: the family's unspoken_tokens


class SpeechTokenizer:
    """What the ids of one checkpoint mean.

    spec, config, generation_config: see SpeechSpec. tokenizer: of transformers, or a PlainTokenizer.
    control: the control tokens. text_tokens: the ids of text.
    """

    def __init__(self, spec: SpeechSpec, config: Any, generation_config: Any, tokenizer: Any) -> None:
        self.spec = spec
        self.config = config
        self.generation_config = generation_config
        self.tokenizer = tokenizer
        self.control = spec.tokens(config)
        self.text_tokens = range(self.control.end_of_text) if self.control.text is None else self.control.text

    def opening_tokens(self, language: str | None, task: str, *, timestamps: bool) -> list[int]:
        """The control tokens that open a transcript; timestamps: in families that have such."""
        timestamps = timestamps and self.control.first_timestamp is not None
        return self.spec.decoder_prompt(self.config, language=language, task=task, timestamps=timestamps)

    def encode(self, text: str) -> list[int]:
        """The text's tokens, without special ones around it."""
        return list(self.tokenizer(text, add_special_tokens=False).input_ids)

    def encode_prompt(self, prompt: str | Sequence[int]) -> list[int]:
        """Tokens of text that stands beside a transcript, as it would be written there: after a blank."""
        if not isinstance(prompt, str):
            return list(prompt)
        return self.encode(prompt.strip() if self._opening_word else f" {prompt.strip()}")

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, with the blank before its first word; timestamps and other control tokens have none."""
        text = [token for token in tokens if token in self.text_tokens]
        return self._decoded([*self._opening_word, *text])[len(self._decoded(self._opening_word)) :]

    def is_timestamp(self, token: int) -> bool:
        """Whether a token is a time."""
        return self.control.first_timestamp is not None and token >= self.control.first_timestamp

    def suppressed_tokens(self, options: TranscriptionOptions) -> tuple[int, ...]:
        """The tokens that never come, control tokens of prompts among them unless options suppress nothing at all."""
        if not options.suppress_tokens:
            return ()
        unspoken = self._unspoken_tokens if UNSPOKEN in options.suppress_tokens else ()
        given = (token for token in options.suppress_tokens if token != UNSPOKEN)
        return tuple(sorted({*given, *unspoken, *self.control.prompt_only}))

    @cached_property
    def blank_tokens(self) -> tuple[int, ...]:
        """The tokens with which a transcript is blank: a blank, and the end of the text.

        None for a family without a token for silence, which has no other way to say that nobody speaks.
        """
        return () if self.control.no_speech is None else (*self.encode(" "), self.control.end_of_text)

    @cached_property
    def _unspoken_tokens(self) -> tuple[int, ...]:
        if self.spec.unspoken_tokens is None:
            return ()
        return tuple(resolve(self.spec.unspoken_tokens)(self.config, self.generation_config, self.tokenizer))

    @cached_property
    def _opening_word(self) -> list[int]:
        """A word to decode before any other, where the tokenizer gives the first word of a text its blank by itself."""
        word = self.encode("a")
        return [] if self._decoded([*word, *word]) == 2 * self._decoded(word) else word

    def _decoded(self, tokens: Sequence[int]) -> str:
        return str(self.tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False))
