"""Values of sampling parameters, as users write them, in the form that SamplingParams keeps: frozen and hashable.

SamplingParams declares these functions as the ``parse`` of its parameters: each takes the parameter's name and a value,
and raises ParameterError for what cannot be its value.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import islice
from typing import Any, TypeAlias

from transept.errors import ParameterError, shown
from transept.options import LONE_SURROGATE

# Called as ``processor(logits, rows)`` after the suppressions, to change logits in place, or to return new ones of the
# same shape, dtype and device: float32 [rows, vocabulary], and each row's SequenceData with its prompt_token_ids and
# output_token_ids, which are copies. Requests with equal processors share a call, so let them be hashable, and equal if
# they do the same. They must depend on their arguments alone: after a failure in the batch, or a preemption, they are
# called again for the same tokens. One that raises, or returns anything else, ends its request. NaN is not looked for;
# where nothing but minus infinity is left, any token may come. A beam search normalises what they leave. An instance of
# transformers' LogitsProcessor is called as ``processor(input_ids, scores)`` instead, for one row at a time.
LogitsProcessor: TypeAlias = Callable[[Any, Sequence[Any]], Any]

MAX_TOKEN_IDS = 1 << 20  # in one list; vocabularies have some 256,000
MAX_STRINGS = {"stop": 256, "bad_words": 2048}  # all are looked for after every token, as are
MAX_BAD_RUNS = 8192  # of bad_words_ids
MAX_BIAS = 1e6  # logits are float32: far beyond any of theirs, far below overflow


def token_ids(name: str, given: Any) -> tuple[int, ...] | None:
    """Return the token ids of a list; None for None, as below."""
    if given is None:
        return None
    try:
        tokens = tuple(operator.index(token) for token in islice(given, MAX_TOKEN_IDS + 1))
    except Exception:  # of whatever is iterated over
        raise ParameterError(
            f"{{{name}}} must be a list of token ids, not {shown(given)}", param=name, value=given
        ) from None
    if len(tokens) > MAX_TOKEN_IDS:
        raise ParameterError(f"{{{name}}} holds more than {MAX_TOKEN_IDS} token ids", param=name, value=given)
    if tokens and min(tokens) < 0:
        raise ParameterError(f"{{{name}}} holds {min(tokens)}; token ids start at 0", param=name, value=given)
    return tokens


def one_or_more_ids(name: str, given: Any) -> tuple[int, ...] | None:
    """Return the token ids of a list, or the one that is given."""
    return token_ids(name, (given,) if isinstance(given, int) else given)


def logit_bias(name: str, given: Any) -> tuple[tuple[int, float], ...]:
    """Return pairs of a token id and the value added to its logit, in the order of the ids."""
    try:
        bias = {
            int(token) if isinstance(token, str) else operator.index(token): float(value)  # keys of JSON are strings
            for token, value in dict(given).items()
        }
    except (OverflowError, TypeError, ValueError):
        raise ParameterError(
            f"{{{name}}} must be {{token id: number}}, not {shown(given)}", param=name, value=given
        ) from None
    for token, value in bias.items():
        if token < 0 or not -MAX_BIAS <= value <= MAX_BIAS:
            raise ParameterError(
                f"{{{name}}} must hold token ids from 0 up and numbers in [-{MAX_BIAS:g}, {MAX_BIAS:g}], "
                f"not {token}: {value}",
                param=name,
                value=given,
            )
    return tuple(sorted(bias.items()))


def bad_words_ids(name: str, given: Any) -> tuple[tuple[int, ...], ...] | None:
    """Return runs of token ids, none of them empty."""
    if given is None:
        return None
    runs = given if isinstance(given, Iterable) else (given,)
    words = tuple(token_ids(name, run) or () for run in islice(runs, MAX_BAD_RUNS + 1))
    if len(words) > MAX_BAD_RUNS:
        raise ParameterError(f"{{{name}}} holds more than {MAX_BAD_RUNS} words", param=name, value=given)
    if not all(words):
        raise ParameterError(
            f"{{{name}}} holds an empty list; give each word's token ids: [[17], [4, 9]]", param=name, value=given
        )
    return words


def logits_processors(name: str, given: Any) -> tuple[LogitsProcessor, ...]:
    """Return logits processors, of which a single one may be given."""
    processors = tuple(given) if isinstance(given, Iterable) else (given,)
    for processor in processors:
        if not (callable(processor) and isinstance(processor, Hashable)):
            raise ParameterError(
                f"{{{name}}} holds {shown(processor)}; each must be hashable and callable as (logits, rows)",
                param=name,
                value=given,
            )
    return processors


def texts(name: str, given: Any) -> tuple[str, ...]:
    """Return the strings of a parameter, of which a single one may be given."""
    several = given if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    texts, most = tuple(islice(several, MAX_STRINGS[name] + 1)), MAX_STRINGS[name]
    if len(texts) > most:
        raise ParameterError(f"{{{name}}} holds more than {most} strings", param=name, value=given)
    if any(not isinstance(text, str) or not text for text in texts):
        raise ParameterError(
            f"{{{name}}} must be a non-empty string or a list of them, not {shown(given)}", param=name, value=given
        )
    if any(LONE_SURROGATE.search(text) for text in texts):
        raise ParameterError(
            f"{{{name}}} holds half a surrogate pair, which is no text: {shown(given)}", param=name, value=given
        )
    return texts
