"""Convert users' values of sampling parameters to SamplingParams' form, which is frozen and hashable.

SamplingParams declares these functions as the ``parse`` of its parameters. Each takes the parameter's name and a value,
and raises ParameterError for an invalid value.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias

from transept.errors import ParameterError, shown
from transept.options import Option, refuse_lone_surrogates

# Called as ``processor(logits, rows)`` after the suppressions. logits: float32 [rows, vocabulary]. rows: SequenceData
# with copies of each row's prompt_token_ids and output_token_ids. A processor changes the logits in place, or returns
# new ones of the same shape, dtype and device; if it raises, or returns anything else, its request fails.
# Requests with equal processors share a call, so processors must be hashable, and equal if they do the same. They must
# depend on their arguments alone: after a failure in the batch, or a preemption, they are called again for the same
# tokens. NaN is not checked for. If all logits are minus infinity, any token may be drawn. A beam search normalises the
# result. An instance of transformers' LogitsProcessor is called as ``processor(input_ids, scores)``, row by row.
LogitsProcessor: TypeAlias = Callable[[Any, Sequence[Any]], Any]

MAX_TOKEN_IDS = 1 << 20  # in one list; vocabularies have about 256,000
MAX_STRINGS = {"stop": 256, "bad_words": 2048}  # all are searched for after every token
MAX_BAD_RUNS = 8192  # of bad_words_ids, likewise
MAX_BIAS = 1e6  # far above any logit, and far below overflow of float32


def _refusal(name: str, given: Any, problem: str) -> ParameterError:
    """Return the error of a parameter's value. problem: the message after the parameter's name."""
    return ParameterError(f"{{{name}}} {problem}", param=name, value=given)


def token_ids(name: str, given: Any) -> tuple[int, ...] | None:
    """Return the token ids of a list; None for None."""
    if given is None:
        return None
    try:
        tokens = tuple(operator.index(token) for token in islice(given, MAX_TOKEN_IDS + 1))
    except Exception:  # of any iterable
        raise _refusal(name, given, f"must be a list of token ids, not {{{name}!}}") from None
    if len(tokens) > MAX_TOKEN_IDS:
        raise _refusal(name, given, f"holds more than {MAX_TOKEN_IDS} token ids")
    if tokens and min(tokens) < 0:
        raise _refusal(name, given, f"holds {min(tokens)}; token ids start at 0")
    return tokens


def one_or_more_ids(name: str, given: Any) -> tuple[int, ...] | None:
    """Return the token ids of a list, or a single one."""
    return token_ids(name, (given,) if isinstance(given, int) else given)


def logit_bias(name: str, given: Any) -> tuple[tuple[int, float], ...]:
    """Return pairs of a token id and the value added to its logit, in the order of the ids."""
    try:
        bias = {
            int(token) if isinstance(token, str) else operator.index(token): float(value)  # keys of JSON are strings
            for token, value in dict(given).items()
        }
    except (OverflowError, TypeError, ValueError):
        raise _refusal(name, given, f"must be {{token id: number}}, not {{{name}!}}") from None
    for token, value in bias.items():
        if token < 0 or not -MAX_BIAS <= value <= MAX_BIAS:
            wanted = f"token ids of at least 0 and numbers in [-{MAX_BIAS:g}, {MAX_BIAS:g}]"
            raise _refusal(name, given, f"must hold {wanted}, not {token}: {value}")
    return tuple(sorted(bias.items()))


def bad_words_ids(name: str, given: Any) -> tuple[tuple[int, ...], ...] | None:
    """Return sequences of token ids, none of them empty."""
    if given is None:
        return None
    runs = given if isinstance(given, Iterable) else (given,)
    words = tuple(token_ids(name, run) or () for run in islice(runs, MAX_BAD_RUNS + 1))
    if len(words) > MAX_BAD_RUNS:
        raise _refusal(name, given, f"holds more than {MAX_BAD_RUNS} words")
    if not all(words):
        raise _refusal(name, given, "holds an empty list; give each word's token ids: [[17], [4, 9]]")
    return words


def logits_processors(name: str, given: Any) -> tuple[LogitsProcessor, ...]:
    """Return the logits processors of a list, or a single one."""
    processors = tuple(given) if isinstance(given, Iterable) else (given,)
    for processor in processors:
        if not (callable(processor) and isinstance(processor, Hashable)):
            wanted = "each must be hashable and callable as (logits, rows)"
            raise _refusal(name, given, f"holds {shown(processor)}; {wanted}")
    return processors


def text_or_token_ids(name: str, given: Any) -> str | tuple[int, ...] | None:
    """Return a text unchanged, or the token ids of a list."""
    if isinstance(given, str):
        refuse_lone_surrogates(name, given)
        return given
    if given is not None and (isinstance(given, bytes | Mapping) or not isinstance(given, Iterable)):
        raise _refusal(name, given, f"must be a text or a list of token ids, not {{{name}!}}")
    return token_ids(name, given)


def function_of_tokens(name: str, given: Any) -> Any:
    """Return a hashable function, or None."""
    if given is not None and not (callable(given) and isinstance(given, Hashable)):
        raise _refusal(name, given, f"must be hashable and callable as (tokens), not {shown(given)}")
    return given


def texts(name: str, given: Any) -> tuple[str, ...]:
    """Return the strings of a list, or a single one."""
    several = given if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    texts, most = tuple(islice(several, MAX_STRINGS[name] + 1)), MAX_STRINGS[name]
    if len(texts) > most:
        raise _refusal(name, given, f"holds more than {most} strings")
    if any(not isinstance(text, str) or not text for text in texts):
        raise _refusal(name, given, f"must be a non-empty string or a list of them, not {{{name}!}}")
    for text in texts:
        refuse_lone_surrogates(name, text, given)
    return texts


BAD_WORDS = Option(
    "texts that are never written, at the start of a word or within one",
    "They need the checkpoint's tokenizer.",
    parse=texts,
)
