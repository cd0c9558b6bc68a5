"""The words of a text that a model wrote as tokens.

Called by `timing.words`. A token may end inside a character (byte-level tokens of many scripts do), so tokens
are first joined to pieces that are whole characters; where a language puts blanks between words, pieces to words.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

UNSPACED_LANGUAGES = frozenset({"zh", "ja", "th", "lo", "my", "yue"})  # no blanks between words; as in openai-whisper
REPLACEMENT = "\ufffd"  # what a tokenizer writes for bytes that are no character


def split_words(tokens: Sequence[int], tokenizer: Any, language: str | None) -> list[tuple[str, list[int]]]:
    """The words of a text with their tokens, in order; all tokens are in one of them.

    tokenizer: of transformers. language: code; where it has no blanks between words, each run of tokens that makes
    whole characters is a word. Blanks stay at the head of the word behind them, and punctuation is a word of its own.
    """
    pieces = _whole_characters(tokens, tokenizer)
    if language in UNSPACED_LANGUAGES:
        return pieces
    words: list[tuple[str, list[int]]] = []
    for text, ids in pieces:
        if not words or text.startswith(" ") or text.strip() in string.punctuation:
            words.append((text, ids))
        else:
            begun, begun_ids = words[-1]
            words[-1] = (begun + text, begun_ids + ids)
    return words


def _whole_characters(tokens: Sequence[int], tokenizer: Any) -> list[tuple[str, list[int]]]:
    """The shortest runs of tokens that end where a character ends, with their texts."""
    whole = _decode(tokens, tokenizer)
    pieces: list[tuple[str, list[int]]] = []
    done = 0  # characters of the whole text that the pieces hold
    run: list[int] = []
    for token in tokens:
        run.append(token)
        text = _decode(run, tokenizer)
        broken = text.find(REPLACEMENT)
        # A replacement character that is in the whole text too is what the model wrote, not the cut of this run.
        if broken < 0 or whole[done + broken : done + broken + 1] == REPLACEMENT:
            pieces.append((text, run))
            done += len(text)
            run = []
    if run:  # the text breaks off inside a character
        pieces.append((whole[done:], run))
    return pieces


def _decode(tokens: Sequence[int], tokenizer: Any) -> str:
    return str(tokenizer.decode(list(tokens), skip_special_tokens=False, clean_up_tokenization_spaces=False))
