"""OpenAI's ``logprobs`` of a completion: the texts of tokens beside their log probabilities."""

from __future__ import annotations

import codecs
import re
from typing import Any

from transept.serving.http.completion_jobs import Piece

LEAST_LOGPROB = -9999.0
BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")  # a byte in SentencePiece's vocabularies
# The other bytes that byte-level vocabularies write as a character: ByT5's as Latin-1; GPT-2's unprintable ones, which
# are the characters from 256 on.
_UNPRINTABLE = (*range(33), *range(127, 161), 173)
BYTES = {chr(byte): byte for byte in range(256)} | {chr(256 + n): byte for n, byte in enumerate(_UNPRINTABLE)}


def logprobs_of(tokenizer: Any, piece: Piece, num_top: int, offset: int) -> tuple[dict[str, Any], int]:
    """Return OpenAI's object, and the offset at which the text of the last token ends.

    num_top: number of likely tokens for each position. offset: at which the first token's text begins.
    """
    special = set(tokenizer.all_special_ids)
    characters = codecs.getincrementaldecoder("utf-8")("replace")  # of tokens that are parts of characters
    found: dict[str, Any] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    before = piece.token_before
    for token, alternatives in zip(piece.token_ids, piece.logprobs or (), strict=True):
        raw, text = bytes_of(tokenizer, token), text_of(tokenizer, before, token)
        found["tokens"].append(text)
        found["token_logprobs"].append(_in_json(alternatives.get(token)))
        top = sorted(alternatives, key=lambda each: -alternatives[each])[:num_top]
        names = _names(tokenizer, before, top, {text: token})
        found["top_logprobs"].append({names[each]: _in_json(alternatives[each]) for each in top})
        found["text_offset"].append(offset)
        if raw is not None:
            offset += len(characters.decode(raw))
        elif token not in special:
            offset += len(characters.decode(b"", final=True)) + len(text)
        before = token
    return found, offset


def bytes_of(tokenizer: Any, token: int) -> bytes | None:
    """Return the bytes of a token that is not whole characters; None for any other token."""
    alone = tokenizer.decode([token])
    if alone and "\ufffd" not in alone:
        return None
    name = str(tokenizer.convert_ids_to_tokens(token))
    if match := BYTE_TOKEN.fullmatch(name):
        raw = bytes.fromhex(match[1])
    elif all(character in BYTES for character in name):
        raw = bytes(BYTES[character] for character in name)
    else:
        return None
    try:
        raw.decode()
    except UnicodeDecodeError:
        return raw
    return None


def text_of(tokenizer: Any, before: int | None, token: int) -> str:
    r"""Return a token's text after another token; it may begin with a blank that it lacks at the start of a text.

    A token that is not whole characters is its bytes, as OpenAI writes them: ``bytes:`` with a ``\xe2`` for each byte.
    """
    if (raw := bytes_of(tokenizer, token)) is not None:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
    if before is None:
        return str(tokenizer.decode([token]))
    first, both = tokenizer.decode([before]), tokenizer.decode([before, token])
    return str(both[len(first) :] if both.startswith(first) else tokenizer.decode([token]))


def _names(tokenizer: Any, before: int | None, tokens: list[int], taken: dict[str, int]) -> dict[int, str]:
    """Return each token's own name: its text, or ``token_id:N`` if the text is taken. taken: text -> token."""
    texts = {token: text_of(tokenizer, before, token) for token in tokens}
    return {
        token: text if taken.setdefault(text, token) == token else f"token_id:{token}" for token, text in texts.items()
    }


def _in_json(logprob: float | None) -> float | None:
    """Replace minus infinity, which JSON lacks, by LEAST_LOGPROB, as OpenAI does."""
    return None if logprob is None else max(logprob, LEAST_LOGPROB)
