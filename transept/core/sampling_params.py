"""SamplingParams: how the tokens of one request are chosen and when it ends.

Made by the user, completed once by the engine with the checkpoint's generation_config.json, read by the sampler and by
the stop check. No torch here.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from transept.errors import ParameterError, suggest


@dataclass(frozen=True)
class SamplingParams:
    """How one request decodes. A field left None takes the checkpoint's generation_config.json value, if it has one.

    n: samples of one request; they share the encoder's work and the cross-attention cache.
    max_tokens: new tokens at most, the decoder prompt not counted. Default: as many as the model has positions for.
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
        bias = self.logit_bias.items() if isinstance(self.logit_bias, Mapping) else self.logit_bias
        freeze(self, "logit_bias", tuple(sorted((int(token), float(value)) for token, value in bias)))
        freeze(self, "stop", (self.stop,) if isinstance(self.stop, str) else tuple(self.stop))
        freeze(self, "stop_token_ids", tuple(self.stop_token_ids))
        for name in ("allowed_token_ids", "suppress_tokens", "begin_suppress_tokens"):
            value = getattr(self, name)
            freeze(self, name, None if value is None else tuple(value))
        self._check_ranges()
        self._check_contradictions()

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is taken. Meaningful once the temperature is known (see `resolve`)."""
        return self.temperature == 0.0

    def resolve(self, generation_config: Any, max_new_tokens: int) -> SamplingParams:
        """Complete the fields left None from a transformers GenerationConfig.

        max_new_tokens: how many the model has positions for, after the decoder prompt; the bound of max_tokens.
        A request that samples without a seed gets one at random. Raises ParameterError when the completed parameters
        contradict each other.
        """
        default = generation_config
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
        return dataclasses.replace(
            self,
            max_tokens=max_new_tokens if self.max_tokens is None else min(self.max_tokens, max_new_tokens),
            temperature=temperature,
            top_k=top_k or 0,
            top_p=1.0 if top_p is None else top_p,
            repetition_penalty=penalty,
            seed=secrets.randbits(63) if self.seed is None and temperature > 0.0 else self.seed,
            suppress_tokens=_first_given(self.suppress_tokens, getattr(default, "suppress_tokens", None)),
            begin_suppress_tokens=_first_given(
                self.begin_suppress_tokens, getattr(default, "begin_suppress_tokens", None)
            ),
        )

    def _check_ranges(self) -> None:
        at_least_one = ("n", "max_tokens", "logprobs")
        for name in ("n", "max_tokens", "min_tokens", "top_k", "seed", "logprobs"):
            value = getattr(self, name)
            low = 1 if name in at_least_one else 0
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < low):
                raise ParameterError(f"{name} must be an integer of at least {low}, not {value!r}")
        ranges = {
            "temperature": (0.0, float("inf")),
            "top_p": (0.0, 1.0),
            "min_p": (0.0, 1.0),
            "repetition_penalty": (0.0, float("inf")),
            "presence_penalty": (-2.0, 2.0),
            "frequency_penalty": (-2.0, 2.0),
        }
        for name, (low_value, high) in ranges.items():
            value = getattr(self, name)
            if value is not None and not low_value <= value <= high:
                raise ParameterError(f"{name} must lie in [{low_value:g}, {high:g}], not {value!r}")
        for name in ("top_p", "repetition_penalty"):
            if getattr(self, name) == 0:
                raise ParameterError(f"{name} must be above 0")
        if self.seed is not None and self.seed >= 2**64:
            raise ParameterError(f"seed must be below 2**64, not {self.seed}")
        if any(not isinstance(text, str) or not text for text in self.stop):
            raise ParameterError("stop strings must be non-empty strings")

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
        if self.allowed_token_ids is not None:
            left = set(self.allowed_token_ids) - set(self.suppress_tokens or ())
            if not left:
                raise ParameterError("allowed_token_ids leaves no token: it is empty or all of it is suppressed")


def _first_given(own: Sequence[int] | None, default: Sequence[int] | None) -> tuple[int, ...]:
    return tuple(default or ()) if own is None else tuple(own)
