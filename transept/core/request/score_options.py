"""Options that change the scores of tokens as transformers' generate does, and its limit of time. No torch here.

SamplingParams has them as parameters, and the sampler applies them (`transept.core.execution.score_rules`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, TypeAlias

from transept.core.request import sampling_values as values
from transept.errors import ParameterError
from transept.options import Option

MAX_FACTOR = 1e6  # of a decay; its powers are bounded by the sampler
MAX_SECONDS = 1e9

SequenceBias: TypeAlias = tuple[tuple[tuple[int, ...], float], ...]

# The parameters that the sampler reads, each with the value that has no effect.
NO_RULE: Mapping[str, Any] = {
    "sequence_bias": (),
    "encoder_repetition_penalty": 1.0,
    "exponential_decay_length_penalty": None,
    "remove_invalid_values": False,
    "renormalize_logits": False,
}


def biased(given: Any) -> Iterable[tuple[tuple[int, ...], Any]]:
    """Yield token ids and their bias. given: a mapping or pairs, as in transformers, or None."""
    pairs = given.items() if isinstance(given, Mapping) else given or ()
    return ((tuple(tokens), bias) for tokens, bias in pairs)


def _sequence_bias(name: str, given: Any) -> SequenceBias | None:
    """Return pairs of token ids and a number, in order. given: a mapping, or such pairs, as in transformers."""
    if given is None:
        return None
    wanted = f"must be {{token ids: number}} or pairs [token ids, number], not {{{name}!}}"
    try:
        pairs = islice(biased(given), values.MAX_BAD_RUNS + 1)
        found = {values.token_ids(name, tokens): float(bias) for tokens, bias in pairs}
    except (OverflowError, TypeError, ValueError):
        raise ParameterError(f"{{{name}}} {wanted}", param=name, value=given) from None
    if len(found) > values.MAX_BAD_RUNS:
        raise ParameterError(f"{{{name}}} holds more than {values.MAX_BAD_RUNS} pairs", param=name, value=given)
    for tokens, bias in found.items():
        if not tokens or not (-values.MAX_BIAS <= bias <= values.MAX_BIAS or bias == -math.inf):
            bounds = f"numbers in [-{values.MAX_BIAS:g}, {values.MAX_BIAS:g}] or minus infinity"
            wrong = "an empty list of tokens" if not tokens else f"{bias}"
            message = f"{{{name}}} must hold {bounds} for lists of at least one token, not {wrong}"
            raise ParameterError(message, param=name, value=given)
    return tuple(sorted(found.items()))  # type: ignore[arg-type]


def _decay(name: str, given: Any) -> tuple[int, float] | None:
    """Return a start and a factor."""
    if given is None:
        return None
    try:
        start, factor = given if isinstance(given, Iterable) else ()
        decay = operator.index(start), float(factor)
    except (OverflowError, TypeError, ValueError):
        decay = 0, math.nan
    if not 0 < decay[1] <= MAX_FACTOR:
        wanted = f"must be a pair of a number of tokens and a factor in (0, {MAX_FACTOR:g}], such as (20, 1.05)"
        raise ParameterError(f"{{{name}}} {wanted}, not {{{name}!}}", param=name, value=given)
    return decay


SEQUENCE_BIAS = Option(
    "token ids -> value added to the logit of the last one wherever it would complete them",
    "A mapping of tuples, or pairs ``[[token ids], number]``, as in transformers. The decoder prompt counts as well. "
    "Minus infinity forbids the sequence.",
    also="Mapping[Sequence[int], float]",
    parse=_sequence_bias,
)
ENCODER_REPETITION_PENALTY = Option(
    "above 1 favours tokens of the encoder's prompt, below 1 others",
    "It multiplies positive and divides negative logits of these tokens, the special ones included.",
    metavar="X",
    gt=0,
)
EXPONENTIAL_DECAY = Option(
    "start and factor: after this many new tokens, the end-of-sequence token becomes likelier with each token",
    "Its logit grows by ``abs(logit) * (factor**k - 1)`` k tokens after the start. Counted as for max_tokens.",
    wanted="a pair of a number of tokens and a factor",
    parse=_decay,
)
REMOVE_INVALID_VALUES = Option(
    "replace logits that are NaN by 0, and infinite ones by the largest and smallest numbers",
    "So a model that overflows fails no request. Not for guided outputs.",
)
RENORMALIZE_LOGITS = Option(
    "normalize the scores of a beam search again after all other rules",
    "Only the ranks of beams depend on it: samples, and log probabilities of other requests, are always normalized.",
)
MAX_TIME = Option(
    "seconds after which a text ends with its next token",
    "They begin when the engine receives the request, and so include the time in the queue. The finish reason is "
    "length, and every text has at least one token.",
    metavar="S",
    ge=0,
    le=MAX_SECONDS,
)
