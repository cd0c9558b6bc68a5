"""OpenAI's ``logprobs`` of a completion: the texts of tokens beside their log probabilities."""

from __future__ import annotations

from typing import Any

from transept.serving.http.completion_jobs import Piece

LEAST_LOGPROB = -9999.0


def logprobs_of(tokenizer: Any, piece: Piece, num_top: int, offset: int) -> tuple[dict[str, Any], int]:
    """OpenAI's object, and where the text of the last token ends.

    num_top: how many of the most likely tokens are told at each place. offset: where the first token's text begins.
    """
    special = set(tokenizer.all_special_ids)
    found: dict[str, Any] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    before = piece.token_before
    for token, alternatives in zip(piece.token_ids, piece.logprobs or (), strict=True):
        text = text_of(tokenizer, before, token)
        found["tokens"].append(text)
        found["token_logprobs"].append(_in_json(alternatives.get(token)))
        top = sorted(alternatives.items(), key=lambda each: -each[1])[:num_top]
        found["top_logprobs"].append({text_of(tokenizer, before, each): _in_json(value) for each, value in top})
        found["text_offset"].append(offset)
        offset += 0 if token in special else len(text)
        before = token
    return found, offset


def _in_json(logprob: float | None) -> float | None:
    """JSON has no infinity: as OpenAI does, LEAST_LOGPROB stands for a token that could not come."""
    return None if logprob is None else max(logprob, LEAST_LOGPROB)


def text_of(tokenizer: Any, before: int | None, token: int) -> str:
    """A token's text after another token, where a blank may begin it that it has not at the start of a text."""
    if before is None:
        return str(tokenizer.decode([token]))
    first, both = tokenizer.decode([before]), tokenizer.decode([before, token])
    return str(both[len(first) :] if both.startswith(first) else tokenizer.decode([token]))
