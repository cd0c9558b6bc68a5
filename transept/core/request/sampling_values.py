"""Values of sampling parameters, as users write them, in the form that SamplingParams keeps: frozen and hashable.

Raises ParameterError for whatever cannot be such a value. Called by SamplingParams alone.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import islice
from numbers import Real
from typing import Any, TypeAlias

from transept.errors import ParameterError, shown
from transept.options import LONE_SURROGATE

LogitsProcessor: TypeAlias = Callable[[Any, Sequence[Any]], Any]  # (logits, rows of SequenceData) -> None or logits

MAX_TOKEN_IDS = 1 << 20  # in one list; vocabularies have some 256,000
MAX_STRINGS = {"stop": 256, "bad_words": 2048}  # all are looked for after every token, as are
MAX_BAD_RUNS = 8192  # of bad_words_ids
MAX_BIAS = 1e6  # logits are float32: far beyond any of theirs, far below overflow


def number(value: Any) -> float:
    """Return a number as a float; NaN for any other value, and for a number too large for a float."""
    try:
        return math.nan if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    except OverflowError:
        return math.nan


def token_ids(name: str, given: Iterable[int]) -> tuple[int, ...]:
    """Return the token ids of a parameter. name: of the parameter, as below."""
    try:
        tokens = tuple(operator.index(token) for token in islice(given, MAX_TOKEN_IDS + 1))
    except Exception:  # of whatever is iterated over
        raise ParameterError(f"{name} must be a list of token ids, not {shown(given)}") from None
    if len(tokens) > MAX_TOKEN_IDS:
        raise ParameterError(f"{name} holds more than {MAX_TOKEN_IDS} token ids")
    if tokens and min(tokens) < 0:
        raise ParameterError(f"{name} holds {min(tokens)}; token ids start at 0")
    return tokens


def logit_bias(given: Mapping[Any, float] | Iterable[tuple[Any, float]]) -> tuple[tuple[int, float], ...]:
    """Return pairs of a token id and the value added to its logit, in the order of the ids."""
    try:
        bias = {
            int(token) if isinstance(token, str) else operator.index(token): float(value)  # keys of JSON are strings
            for token, value in dict(given).items()
        }
    except (OverflowError, TypeError, ValueError):
        raise ParameterError(f"logit_bias must be {{token id: number}}, not {shown(given)}") from None
    for token, value in bias.items():
        if token < 0 or not -MAX_BIAS <= value <= MAX_BIAS:
            raise ParameterError(
                f"logit_bias must hold token ids from 0 up and numbers in [-{MAX_BIAS:g}, {MAX_BIAS:g}], "
                f"not {token}: {value}"
            )
    return tuple(sorted(bias.items()))


def bad_words_ids(given: Iterable[Iterable[int]]) -> tuple[tuple[int, ...], ...]:
    """Return runs of token ids, none of them empty."""
    runs = given if isinstance(given, Iterable) else (given,)
    words = tuple(token_ids("bad_words_ids", run) for run in islice(runs, MAX_BAD_RUNS + 1))
    if len(words) > MAX_BAD_RUNS:
        raise ParameterError(f"bad_words_ids holds more than {MAX_BAD_RUNS} words")
    if not all(words):
        raise ParameterError("bad_words_ids holds an empty list; give each word's token ids: [[17], [4, 9]]")
    return words


def logits_processors(given: Iterable[LogitsProcessor]) -> tuple[LogitsProcessor, ...]:
    """Return logits processors, of which a single one may be given."""
    processors = tuple(given) if isinstance(given, Iterable) else (given,)
    for processor in processors:
        if not (callable(processor) and isinstance(processor, Hashable)):
            raise ParameterError(
                f"logits_processors holds {shown(processor)}; each must be hashable and callable as (logits, rows)"
            )
    return processors


def texts(name: str, given: str | Iterable[str]) -> tuple[str, ...]:
    """Return the strings of a parameter, of which a single one may be given."""
    several = given if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    texts, most = tuple(islice(several, MAX_STRINGS[name] + 1)), MAX_STRINGS[name]
    if len(texts) > most:
        raise ParameterError(f"{name} holds more than {most} strings")
    if any(not isinstance(text, str) or not text for text in texts):
        raise ParameterError(f"{name} must be a non-empty string or a list of them, not {shown(given)}")
    if any(LONE_SURROGATE.search(text) for text in texts):
        raise ParameterError(f"{name} holds half a surrogate pair, which is no text: {shown(given)}")
    return texts
