"""SamplingParams: how the tokens of one request are chosen and when it ends.

Made by the user, completed once by the engine with the checkpoint's generation_config.json, read by the sampler and by
the stop check. No torch here.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

from transept.errors import ParameterError, suggest

MAX_BIAS = 1e6  # logits are float32: far beyond any of theirs, far below overflow


UNBOUNDED_MAX_TOKENS = 256  # of a model without a last position, whose generation_config.json says nothing


@dataclass(frozen=True)
class SamplingParams:
    """How one request decodes. A field left None takes the checkpoint's generation_config.json value, if it has one.

    n: samples of one request; they share the encoder's work and the cross-attention cache.
    max_tokens: new tokens at most, the decoder prompt not counted. Without a default: all that the model has positions
        for, or UNBOUNDED_MAX_TOKENS where positions have no bound.
    min_tokens: new tokens before the end-of-sequence or a stop token may come.
    temperature: 0 is greedy. Default: greedy, unless generation_config.json says do_sample.
    top_k: keep the k likeliest tokens (0: all); top_p: keep the smallest set with that much probability;
        min_p: drop tokens below this fraction of the likeliest one's probability.
    repetition_penalty: divides positive and multiplies negative logits of tokens in the decoder prompt or the output
        (Keskar et al. 2019, as in transformers). presence_penalty, frequency_penalty: subtracted once, and once an
        occurrence, from logits of tokens in the output (OpenAI's definitions).
    logit_bias: token id -> value added to its logit.
    allowed_token_ids: only these tokens may be drawn.
    suppress_tokens: never drawn; begin_suppress_tokens: never drawn as the first new token.
    stop: strings that end the output (and are cut from it); stop_token_ids: tokens that end it.
    ignore_eos: go on after the end-of-sequence token.
    seed: makes samples reproducible, whatever else is in the batch.
    logprobs: log probabilities of that many likeliest tokens, and the drawn one, at every position. They are taken
        after penalties, bias and suppression, before temperature and truncation.
    skip_special_tokens: leave special tokens out of the text.

    Raises ParameterError for unknown, ill-valued or contradictory parameters.
    """

    n: int = 1
    max_tokens: int | None = None
    min_tokens: int = 0
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float = 0.0
    repetition_penalty: float | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | tuple[tuple[int, float], ...] = ()
    allowed_token_ids: Sequence[int] | None = None
    suppress_tokens: Sequence[int] | None = None
    begin_suppress_tokens: Sequence[int] | None = None
    stop: str | Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    seed: int | None = field(default=None, compare=False)  # rows that differ in it alone are sampled together
    logprobs: int | None = None
    skip_special_tokens: bool = True

    def __new__(cls, *args: Any, **kwargs: Any) -> SamplingParams:
        """Refuse unknown names with the nearest known one."""
        known = [known.name for known in dataclasses.fields(cls)]
        for name in kwargs:
            if name not in known:
                raise ParameterError(f"SamplingParams has no {name!r}.{suggest(name, known)}")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        freeze = object.__setattr__  # hashable values, so that equal parameters of many requests are handled as one
        freeze(self, "logit_bias", _bias(self.logit_bias))
        freeze(self, "stop", _stop_strings(self.stop))
        freeze(self, "stop_token_ids", _token_ids("stop_token_ids", self.stop_token_ids))
        for name in ("allowed_token_ids", "suppress_tokens", "begin_suppress_tokens"):
            value = getattr(self, name)
            freeze(self, name, None if value is None else _token_ids(name, value))
        self._check_ranges()
        self._check_contradictions()

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is taken. Meaningful once the temperature is known (see `resolve`)."""
        return self.temperature == 0.0

    def resolve(
        self, generation_config: Any, *, prompt_length: int, max_positions: int | None, vocab_size: int
    ) -> SamplingParams:
        """Complete the fields left None from a transformers GenerationConfig.

        prompt_length: tokens of the decoder prompt. max_positions: how many the decoder has for prompt and output
            together, the bound of max_tokens; None: no bound.
        vocab_size: of the model. Token ids of the generation config that lie beyond are left out, as in transformers.
        A request that samples without a seed gets one at random. Raises ParameterError when the completed parameters
        contradict each other or the vocabulary.
        """
        default = generation_config
        self._check_vocabulary(vocab_size)
        sampled = bool(getattr(default, "do_sample", False))
        temperature = self.temperature
        if temperature is None:
            temperature = float(default.temperature or 1.0) if sampled else 0.0
        if temperature == 0.0 and (self.top_k or (self.top_p or 1.0) < 1.0 or self.min_p or self.n > 1):
            raise ParameterError(
                "top_k, top_p, min_p and n > 1 need sampling, but this model decodes greedily by default; "
                "set temperature above 0, such as SamplingParams(temperature=1.0, ...)"
            )
        top_k, top_p = self.top_k, self.top_p
        if temperature > 0.0 and sampled:
            top_k = getattr(default, "top_k", None) if top_k is None else top_k
            top_p = getattr(default, "top_p", None) if top_p is None else top_p
        penalty = self.repetition_penalty
        if penalty is None:
            penalty = getattr(default, "repetition_penalty", None) or 1.0
        completed = dataclasses.replace(
            self,
            max_tokens=self._resolve_max_tokens(default, prompt_length, max_positions),
            temperature=temperature,
            top_k=top_k or 0,
            top_p=1.0 if top_p is None else top_p,
            repetition_penalty=penalty,
            seed=secrets.randbits(63) if self.seed is None and temperature > 0.0 else self.seed,
            suppress_tokens=_first_given(self.suppress_tokens, getattr(default, "suppress_tokens", None), vocab_size),
            begin_suppress_tokens=_first_given(
                self.begin_suppress_tokens, getattr(default, "begin_suppress_tokens", None), vocab_size
            ),
        )
        eos = getattr(default, "eos_token_id", None)
        completed._check_allowed((eos,) if isinstance(eos, int) else tuple(eos or ()))
        return completed

    def _resolve_max_tokens(self, default: Any, prompt_length: int, max_positions: int | None) -> int:
        """The request's own, else generation_config.json's, else all that there are positions for; within the bound."""
        wanted = self.max_tokens or getattr(default, "max_new_tokens", None)
        if wanted is None and getattr(default, "max_length", None):
            wanted = max(1, default.max_length - prompt_length)  # max_length counts the decoder prompt
        if max_positions is None:
            return wanted or UNBOUNDED_MAX_TOKENS
        room = max_positions - prompt_length
        return room if wanted is None else min(wanted, room)

    def _check_ranges(self) -> None:
        open_names = [
            each.name for each in dataclasses.fields(self) if each.default is None
        ]  # None waits for `resolve`
        unset = {name for name in open_names if getattr(self, name) is None}
        at_least_one = ("n", "max_tokens", "logprobs")
        for name in ("n", "max_tokens", "min_tokens", "top_k", "seed", "logprobs"):
            value = getattr(self, name)
            low = 1 if name in at_least_one else 0
            if name in unset:
                continue
            if isinstance(value, bool) or not isinstance(value, Integral) or value < low:
                raise ParameterError(f"{name} must be an integer of at least {low}, not {value!r}")
        ranges = {
            "temperature": (0.0, math.inf),
            "top_p": (0.0, 1.0),
            "min_p": (0.0, 1.0),
            "repetition_penalty": (0.0, math.inf),
            "presence_penalty": (-2.0, 2.0),
            "frequency_penalty": (-2.0, 2.0),
        }
        for name, (low_value, high) in ranges.items():
            value = getattr(self, name)
            if name in unset:
                continue
            number = not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)
            if not number or not low_value <= value <= high:
                end = "inf)" if high == math.inf else f"{high:g}]"
                raise ParameterError(f"{name} must be a number in [{low_value:g}, {end}, not {value!r}")
        for name in ("top_p", "repetition_penalty"):
            if getattr(self, name) == 0:
                raise ParameterError(f"{name} must be above 0")
        if self.seed is not None and self.seed >= 2**64:
            raise ParameterError(f"seed must be below 2**64, not {self.seed}")

    def _check_contradictions(self) -> None:
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise ParameterError(f"min_tokens={self.min_tokens} is over max_tokens={self.max_tokens}")
        if self.temperature == 0.0:
            for name, neutral in (("n", 1), ("top_k", 0), ("top_p", 1.0), ("min_p", 0.0)):
                value = getattr(self, name)
                if value is not None and value != neutral:
                    raise ParameterError(
                        f"temperature=0 is greedy, so {name}={value} has no meaning; set temperature above 0 to sample"
                    )
        self._check_allowed()

    def _check_allowed(self, eos_token_ids: tuple[int, ...] = ()) -> None:
        """Something must be left to draw at every position."""
        if self.allowed_token_ids is None:
            return
        left = {*self.allowed_token_ids}.difference(self.suppress_tokens or (), self.begin_suppress_tokens or ())
        if not left:
            raise ParameterError("allowed_token_ids leaves no token: it is empty or all of it is suppressed")
        if self.min_tokens and not left.difference(self.stop_token_ids, eos_token_ids):
            raise ParameterError(
                "allowed_token_ids leaves only tokens that end the output, and min_tokens forbids them"
            )

    def _check_vocabulary(self, vocab_size: int) -> None:
        given = {
            "logit_bias": list(dict(self.logit_bias)),
            "allowed_token_ids": self.allowed_token_ids or (),
            "suppress_tokens": self.suppress_tokens or (),
            "begin_suppress_tokens": self.begin_suppress_tokens or (),
            "stop_token_ids": self.stop_token_ids,
        }
        for name, tokens in given.items():
            if tokens and max(tokens) >= vocab_size:
                raise ParameterError(f"{name} holds {max(tokens)}; this model's token ids end at {vocab_size - 1}")
        if self.logprobs is not None and self.logprobs > vocab_size:
            raise ParameterError(f"logprobs={self.logprobs} is more than the {vocab_size} tokens that this model has")


def _first_given(own: Sequence[int] | None, default: Sequence[int] | None, vocab_size: int) -> tuple[int, ...]:
    return tuple(token for token in default or () if 0 <= token < vocab_size) if own is None else tuple(own)


def _token_ids(name: str, given: Iterable[int]) -> tuple[int, ...]:
    try:
        tokens = tuple(operator.index(token) for token in given)
    except TypeError:
        raise ParameterError(f"{name} must be a list of token ids, not {given!r}") from None
    if tokens and min(tokens) < 0:
        raise ParameterError(f"{name} holds {min(tokens)}; token ids start at 0")
    return tokens


def _bias(given: Mapping[int, float] | Iterable[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    try:
        bias = {int(token): float(value) for token, value in dict(given).items()}
    except (TypeError, ValueError):
        raise ParameterError(f"logit_bias must be {{token id: number}}, not {given!r}") from None
    for token, value in bias.items():
        if token < 0 or not -MAX_BIAS <= value <= MAX_BIAS:
            raise ParameterError(
                f"logit_bias must hold token ids from 0 up and numbers in [-{MAX_BIAS:g}, {MAX_BIAS:g}], "
                f"not {token}: {value}"
            )
    return tuple(sorted(bias.items()))


def _stop_strings(given: str | Iterable[str]) -> tuple[str, ...]:
    texts = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else (given,)
    if any(not isinstance(text, str) or not text for text in texts):
        raise ParameterError(f"stop must be a non-empty string or a list of them, not {given!r}")
    return texts
