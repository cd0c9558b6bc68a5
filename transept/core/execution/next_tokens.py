"""Call users' `allowed_next_tokens`, and hide all other tokens, for the sampler."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from transept.core.execution.logits_processors import ProcessorInterruptedError
from transept.core.kernels.transfer import upload
from transept.core.scheduling.step import SequenceData
from transept.errors import message_of, shown


def keep_allowed(logits: Tensor, allowed: Callable[..., Any], rows: Sequence[SequenceData]) -> None:
    """Set the logits of tokens that `allowed` does not return to minus infinity, in place on [rows, vocabulary].

    If other rules already forbid all allowed tokens of all sequences of a request, these tokens get 0, as in
    transformers' PrefixConstrainedLogitsProcessor. Raises ValueError if `allowed` returns no token or invalid ones.
    """
    mask = torch.full_like(logits, float("-inf"))
    tokens = [_allowed(allowed, row, logits.shape[1]) for row in rows]
    places = [[i for i, own in enumerate(tokens) for _ in own], [token for own in tokens for token in own]]
    mask[upload(places, logits.device).unbind()] = 0.0
    plain = logits + mask
    dead = torch.isneginf(plain.amax(dim=-1)).tolist()
    alive = {id(row.prompt_token_ids) for row, is_dead in zip(rows, dead, strict=True) if not is_dead}  # by request
    forced = [i for i, row in enumerate(rows) if id(row.prompt_token_ids) not in alive]
    if forced:
        index = upload(forced, logits.device)
        plain[index] = mask[index]
    logits.copy_(plain)


def _allowed(allowed: Callable[..., Any], row: SequenceData, vocab_size: int) -> list[int]:
    """Return the tokens that may follow a row's tokens."""
    try:
        returned = allowed(0, torch.tensor(row.token_ids)) if _takes_batch(allowed) else allowed(row.token_ids)
    except Exception:
        raise
    except BaseException as error:  # sys.exit(), or a signal
        message = f"allowed_next_tokens raised {type(error).__name__}: {message_of(error)}"
        raise ProcessorInterruptedError(message, error) from error
    try:
        tokens = [operator.index(token) for token in returned]
    except TypeError:
        raise ValueError(f"{shown(allowed)} returned {shown(returned)}; it must return a list of token ids") from None
    if not tokens:
        message = f"{shown(allowed)} returned no token after {len(row.token_ids)} tokens; it must return at least one"
        raise ValueError(f"{message}, such as the end-of-sequence token")
    if min(tokens) < 0 or max(tokens) >= vocab_size:
        outside = min(tokens) if min(tokens) < 0 else max(tokens)
        raise ValueError(f"{shown(allowed)} returned {outside}; this model's token ids are 0 to {vocab_size - 1}")
    return tokens


@lru_cache(64)
def _takes_batch(allowed: Callable[..., Any]) -> bool:
    """True for a function with two required positional arguments, which is called as transformers does."""
    try:
        parameters = inspect.signature(allowed).parameters.values()
    except (TypeError, ValueError):  # of a built-in function
        return False
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(each.kind in positional and each.default is inspect.Parameter.empty for each in parameters) == 2
