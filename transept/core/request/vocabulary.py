"""Vocabulary: the bytes that each token of a tokenizer writes, for grammars. No torch here."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from transept.errors import ParameterError

CONTROL_TOKEN = re.compile(r"<\|.*\|>")  # Whisper's timestamps, which not all of its tokenizers call special
BYTE_TOKEN = re.compile("<0x([0-9A-F]{2})>")


@dataclass(frozen=True)
class Vocabulary:
    """The bytes of tokens, in the order of their ids; b"" for a token that writes no text, such as a special one.

    drops_first_blank: True if a text is decoded without the blank of its first token, as by SentencePiece.
    """

    tokens: list[bytes]
    drops_first_blank: bool


def vocabulary_of(tokenizer: Any, size: int) -> Vocabulary:
    """Return the vocabulary of a model with `size` tokens. Ids that the tokenizer lacks write no text.

    Raises ParameterError unless the tokenizer is byte-level, SentencePiece or WordPiece.
    """
    bytes_of = _spelling_of(tokenizer)
    names = {number: token for token, number in tokenizer.get_vocab().items() if number < size}
    added = {number: str(token) for number, token in _added_tokens(tokenizer).items() if number < size}
    special = {number for number in tokenizer.all_special_ids if number < size}
    special.update(
        number
        for number, token in added.items()
        if CONTROL_TOKEN.fullmatch(token) or not tokenizer.decode([number], skip_special_tokens=True)
    )
    tokens = [b""] * size
    for number, token in names.items():
        if number not in special:
            tokens[number] = added[number].encode() if number in added else bytes_of(token)
    word = next((number for number, token in enumerate(tokens) if token[:1] == b" " and token[1:].isalpha()), None)
    drops = word is not None and not tokenizer.decode([word]).startswith(" ")
    return Vocabulary(tokens, drops)


def _added_tokens(tokenizer: Any) -> dict[int, Any]:
    """Return the added tokens by id, of a tokenizer of transformers or a PlainTokenizer."""
    found = getattr(tokenizer, "added_tokens_decoder", None)
    backend = getattr(tokenizer, "_tokenizer", None)
    if found is None:
        found = {} if backend is None else backend.get_added_tokens_decoder()
    return dict(found)


def _spelling_of(tokenizer: Any) -> Callable[[str], bytes]:
    """Return a function that converts a token's name in the vocabulary to the bytes that the token writes."""
    backend = getattr(tokenizer, "_tokenizer", None)
    decoder = getattr(backend, "decoder", None)
    if decoder is not None:
        decoder = json.loads(decoder.__getstate__())
        kinds = [each["type"] for each in decoder.get("decoders", [decoder])]
        if "ByteLevel" in kinds:
            return _byte_level
        if "Metaspace" in kinds or "Replace" in kinds:
            return _sentence_piece
        if kinds == ["WordPiece"] and not decoder["cleanup"]:
            return partial(_word_piece, decoder["prefix"])
    elif backend is None and any(hasattr(tokenizer, name) for name in ("sp_model", "spm_target")):
        return _sentence_piece
    raise ParameterError(
        f"{{guided}} needs a byte-level, SentencePiece or WordPiece tokenizer that does not change blanks, and this "
        f"checkpoint has a {type(tokenizer).__name__}; leave it out, or use {{logits_processors}}",
        param="guided",
    )


def _characters() -> dict[str, int]:
    """Return the byte for each character of byte-level vocabularies (Radford et al. 2019)."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}


BYTES = _characters()


def _byte_level(token: str) -> bytes:
    try:
        return bytes([BYTES[character] for character in token])
    except KeyError:  # not spelt in bytes
        return token.encode()


def _word_piece(prefix: str, token: str) -> bytes:
    return (token.removeprefix(prefix) if token.startswith(prefix) else f" {token}").encode()


def _sentence_piece(token: str) -> bytes:
    byte = BYTE_TOKEN.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else token.replace("▁", " ").encode()
