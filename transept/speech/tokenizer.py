"""SpeechTokenizer: text, control tokens and timestamps of a family, for transcription."""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Any

from transept.errors import ParameterError, shown
from transept.registry.checkpoint_view import CheckpointView
from transept.registry.plugin_calls import call_declared
from transept.registry.spec import ModelSpec, SpeechTokens
from transept.speech.options import TranscriptionOptions

UNSPOKEN = -1  # in suppress_tokens: the family's unspoken_tokens
MOST_REGEX_SECONDS = 2.0  # of processor time, for a suppress_regex to match all tokens
SHORTEST_TIMEOUT = 1e-3  # seconds
REMEMBERED = 16  # regular expressions


class SpeechTokenizer:
    """Meanings of one checkpoint's token ids.

    family: has a SpeechSpec. view: for its functions.
    tokenizer: the checkpoint's, of transformers, or a PlainTokenizer.
    control: the control tokens. text_tokens: ids of text tokens, in rising order. timestamps: ids of timestamps.
    """

    def __init__(self, family: ModelSpec, view: CheckpointView) -> None:
        self.family = family
        self.view = view
        self.tokenizer: Any = view.tokenizer
        self.control: SpeechTokens = call_declared(family, "speech.tokens", view)
        self._matching: dict[str, frozenset[int]] = {}  # by regular expression
        # a range, or keys of a dict: both keep their order and find a member at once
        self.text_tokens: Collection[int] = self.text_range
        if self.control.added_text:
            self.text_tokens = dict.fromkeys((*self.text_range, *self.control.added_text)).keys()
        self.timestamps = range(0)
        first, last, spec = self.control.first_timestamp, self.control.last_timestamp, family.speech
        if first is not None:
            assert spec is not None  # checked by SpeechModel
            if last is None:
                window = call_declared(family, "speech.window_seconds", view)
                last = first + round(window / spec.seconds_per_timestamp)
            self.timestamps = range(first, last + 1)

    @property
    def text_range(self) -> range:
        """Return the ids of text tokens without those that were added outside of their range."""
        return range(self.control.end_of_text) if self.control.text is None else self.control.text

    def opening_tokens(self, language: str | None, task: str, *, timestamps: bool, **target: str | None) -> list[int]:
        """Return the control tokens that open a transcript. timestamps: no effect in families without timestamps.

        target: target_language, for families that have several.
        """
        timestamps = timestamps and self.control.first_timestamp is not None
        asked = {"language": language, "task": task, "timestamps": timestamps, **target}
        opening: list[int] = call_declared(self.family, "speech.decoder_prompt", self.view, **asked)
        return opening

    def encode(self, text: str) -> list[int]:
        """Return a text's tokens, without special tokens around them."""
        return list(self.tokenizer(text, add_special_tokens=False).input_ids)

    def encode_prompt(self, prompt: str | Sequence[int]) -> list[int]:
        """Return the tokens of a prompt; its text gets a leading blank, like text within a transcript."""
        if not isinstance(prompt, str):
            return list(prompt)
        return self.encode(prompt.strip() if self._opening_word else f" {prompt.strip()}")

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, with the blank before its first word, without timestamps and control tokens."""
        text = [token for token in tokens if token in self.text_tokens]
        return self._decoded([*self._opening_word, *text])[len(self._decoded(self._opening_word)) :]

    def is_timestamp(self, token: int) -> bool:
        """Return True for a timestamp."""
        return token in self.timestamps

    def suppressed_tokens(self, options: TranscriptionOptions) -> tuple[int, ...]:
        """Return the suppressed tokens; they include control tokens of prompts, unless suppress_tokens is empty.

        Raises ParameterError for a suppress_regex that takes more than MOST_REGEX_SECONDS, or matches all words.
        """
        tokens: set[int] = set()
        if options.suppress_tokens:
            unspoken = self._unspoken_tokens if UNSPOKEN in options.suppress_tokens else ()
            given = (token for token in options.suppress_tokens if token != UNSPOKEN)
            tokens = {*given, *unspoken, *self.control.prompt_only}
        if options.suppress_numerals:
            tokens |= self._numeral_tokens
        if options.suppress_regex is not None:
            tokens |= self._matching_tokens(options.suppress_regex)
        return tuple(sorted(tokens))

    @cached_property
    def blank_tokens(self) -> tuple[int, ...]:
        """The tokens that make a transcript blank: a blank, and the end of text.

        Empty for a family without a token for silence, because a blank text is its only sign of silence.
        """
        return () if self.control.no_speech is None else (*self.encode(" "), self.control.end_of_text)

    @cached_property
    def _unspoken_tokens(self) -> tuple[int, ...]:
        assert self.family.speech is not None  # checked by SpeechModel
        if self.family.speech.unspoken_tokens is None:
            return ()
        return tuple(call_declared(self.family, "speech.unspoken_tokens", self.view))

    @cached_property
    def _texts(self) -> list[str]:
        """Text of each token of text_tokens."""
        return [self.decode([token]) for token in self.text_tokens]

    @cached_property
    def _numeral_tokens(self) -> frozenset[int]:
        texts = zip(self.text_tokens, self._texts, strict=True)
        return frozenset(token for token, text in texts if any(map(_is_numeral, text)))

    def _matching_tokens(self, pattern: str) -> frozenset[int]:
        if pattern not in self._matching:
            import regex

            compiled, texts, matching = regex.compile(pattern), self._texts, set()
            end = time.thread_time() + MOST_REGEX_SECONDS  # processor time of this thread, as in regex's timeouts
            try:
                for token, text in zip(self.text_tokens, texts, strict=True):
                    if compiled.fullmatch(text, timeout=max(end - time.thread_time(), SHORTEST_TIMEOUT)):
                        matching.add(token)
            except TimeoutError:
                raise ParameterError(
                    f"{{suppress_regex}} takes more than {MOST_REGEX_SECONDS:g} s of processor time to match; "
                    f"avoid nested repetition: {shown(pattern)}",
                    param="suppress_regex",
                    value=pattern,
                ) from None
            spoken = (token for token, text in zip(self.text_tokens, texts, strict=True) if any(map(str.isalpha, text)))
            if matching.issuperset(spoken):
                message = "{suppress_regex} matches every token with a letter, so no text would be possible: "
                raise ParameterError(message + shown(pattern), param="suppress_regex", value=pattern)
            while len(self._matching) >= REMEMBERED:
                self._matching.pop(next(iter(self._matching)), None)
            self._matching[pattern] = frozenset(matching)
        return self._matching[pattern]

    @cached_property
    def _opening_word(self) -> list[int]:
        """A word to decode before any other text, if the tokenizer drops the blank before a text's first word."""
        word = self.encode("a")
        return [] if self._decoded([*word, *word]) == 2 * self._decoded(word) else word

    def _decoded(self, tokens: Sequence[int]) -> str:
        return str(self.tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False))


def _is_numeral(character: str) -> bool:
    """True for a digit, another sign for a number, a currency's sign or %; after WhisperX."""
    category = unicodedata.category(character)
    return character == "%" or category == "Sc" or category.startswith("N")
