"""Tokens that transcripts should not contain: brackets, notes and symbols for noises, as in subtitles."""

from __future__ import annotations

from typing import Any

from transept.authoring import CheckpointView
from transept.plugins.whisper.control_tokens import tokens_of

# openai-whisper's list (tokenizer.py); each is suppressed if it is one token, alone or after a blank
MARKS = [
    *'"#()*+/:;<=>@[\\]^_`{|}~「」『』',
    *("<<", ">>", "<<<", ">>>", "--", "---", "-(", "-[", "('", '("', "((", "))", "(((", ")))", "[[", "]]", "{{", "}}"),
    *("♪♪", "♪♪♪"),
]
NOTES = "♩♪♫♬♭♮♯"  # only the first token of each is suppressed; no other symbol begins with it
AT_WORD_START = ("-", "'")  # allowed within a word


def unspoken_tokens(view: CheckpointView) -> tuple[int, ...]:
    """Return the text tokens that the checkpoint suppresses; by default openai-whisper's."""
    given = getattr(view.generation_config, "suppress_tokens", None)
    if given is None:
        return tuple(sorted(_marks(view.tokenizer)))
    control = tokens_of(view)
    known = [token for token in given if 0 <= token < view.config.vocab_size]  # transformers ignores other ids
    return tuple(token for token in known if token < control.start_of_transcript or token > control.last_timestamp)


def _marks(tokenizer: Any) -> set[int]:
    def encode(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False).input_ids)

    tokens = {encode(f" {mark}")[0] for mark in AT_WORD_START}
    for mark in (*MARKS, *NOTES):
        for encoded in (encode(mark), encode(f" {mark}")):
            if len(encoded) == 1 or mark in NOTES:
                tokens.add(encoded[0])
    return tokens
