"""PromptProbe: log probabilities and cross-attention weights of a request's decoder prompt.

SamplingParams requests it, the model runner computes it in the request's prefill, and RequestOutput returns the result.
Transcription uses it for the probability of silence and the words' times. No torch here.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING

from transept.core.request.sampling_values import token_ids
from transept.options import declares_options, refusal

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@declares_options("PromptProbe has no")
@dataclass(frozen=True)
class PromptProbe:
    """The requested values.

    logprobs: (position, token id) pairs: the log probability of that token after the decoder prompt up to and including
        that position, before any processing of the logits.
    vocab_limit: the softmax is over token ids below it; None: over the whole vocabulary.
    beyond_limit: further token ids, of at least vocab_limit, in the softmax.
    cross_attention_heads: (decoder layer, head) pairs whose cross-attention weights are returned.

    Raises ParameterError for anything other than pairs of integers.
    """

    logprobs: tuple[tuple[int, int], ...] = ()
    vocab_limit: int | None = None
    beyond_limit: tuple[int, ...] = ()
    cross_attention_heads: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        for name in ("logprobs", "cross_attention_heads"):
            given = getattr(self, name)
            try:
                pairs = tuple((operator.index(first), operator.index(second)) for first, second in given)
            except (TypeError, ValueError):
                raise refusal(self, f"{{{name}}} must be pairs of integers, not {given!r}") from None
            object.__setattr__(self, name, pairs)
        object.__setattr__(self, "beyond_limit", token_ids("beyond_limit", self.beyond_limit) or ())
        if isinstance(self.vocab_limit, bool) or not isinstance(self.vocab_limit, Integral | None):
            raise refusal(self, f"{{vocab_limit}} must be an integer, not {self.vocab_limit!r}")

    def check(self, prompt_length: int, vocab_size: int, num_layers: int, num_heads: int) -> None:
        """Raise ParameterError unless all requested positions, tokens and heads exist."""
        limit = vocab_size if self.vocab_limit is None else self.vocab_limit
        if not 0 < limit <= vocab_size:
            raise refusal(self, f"{{vocab_limit=}}, but this model has {vocab_size} tokens")
        if outside := [token for token in self.beyond_limit if not limit <= token < vocab_size]:
            message = f"{{beyond_limit}} holds {outside[0]}; its token ids go from {limit} to {vocab_size - 1}"
            raise refusal(self, message)
        for position, token in self.logprobs:
            if not 0 <= position < prompt_length:
                message = f"{{logprobs}} asks for position {position} of a decoder prompt with {prompt_length} tokens"
                raise refusal(self, message)
            if not 0 <= token < limit and token not in self.beyond_limit:
                message = f"{{logprobs}} asks for token id {token}; its token ids go from 0 to {limit - 1}"
                raise refusal(self, message)
        for layer, head in self.cross_attention_heads:
            if not (0 <= layer < num_layers and 0 <= head < num_heads):
                raise refusal(
                    self,
                    f"{{cross_attention_heads}} asks for head {head} of layer {layer}; this decoder has {num_layers} "
                    f"layers of {num_heads} heads, both counted from 0",
                )


@dataclass(frozen=True)
class ProbeResult:
    """The values of a PromptProbe.

    logprobs: one for each pair, in their order.
    cross_attention: float32 [heads, decoder prompt tokens, encoder tokens], heads in the requested order; each row sums
        to 1. None if no heads are requested.
    """

    logprobs: tuple[float, ...]
    cross_attention: npt.NDArray[np.float32] | None
