"""SamplingParams: how the tokens of one request are chosen and when it ends.

Made by the user, completed once by `generation_defaults.complete` with the checkpoint's own settings, read by the
sampler, the beam search and the stop check. No torch here.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from numbers import Integral
from typing import Literal

from transept.core.request import sampling_values
from transept.core.request.prompt_probe import PromptProbe
from transept.core.request.sampling_values import LogitsProcessor as LogitsProcessor
from transept.errors import ParameterError, shown
from transept.option_names import refuses_unknown
from transept.options import MAX_INTEGER, MAX_PATIENCE, MAX_SEED, MAX_TEMPERATURE

MAX_LENGTH_PENALTY = 32.0  # a length to this power, of any length that there is, is a float

INTEGER_RANGES = {  # at least, at most
    **dict.fromkeys(("n", "max_tokens", "logprobs", "num_beams", "num_return_sequences"), (1, MAX_INTEGER)),
    **dict.fromkeys(("min_tokens", "top_k", "forced_bos_token_id"), (0, MAX_INTEGER)),
    **dict.fromkeys(("no_repeat_ngram_size", "encoder_no_repeat_ngram_size"), (0, MAX_INTEGER)),
    "seed": (0, MAX_SEED),
}
NUMBER_RANGES = {  # from, to
    "temperature": (0.0, MAX_TEMPERATURE),
    **dict.fromkeys(("top_p", "min_p"), (0.0, 1.0)),
    "length_penalty": (-MAX_LENGTH_PENALTY, MAX_LENGTH_PENALTY),
    "patience": (0.0, MAX_PATIENCE),
    "repetition_penalty": (0.0, math.inf),
    **dict.fromkeys(("presence_penalty", "frequency_penalty"), (-2.0, 2.0)),
}
TOKEN_LISTS = ["allowed_token_ids", "suppress_tokens", "begin_suppress_tokens", "forced_eos_token_id", "eos_token_ids"]
# What the sampler reads, besides what `sampling_key` itself puts together.
KEY_OF_BEAMS = (
    *("repetition_penalty", "presence_penalty", "frequency_penalty", "no_repeat_ngram_size"),
    *("encoder_no_repeat_ngram_size", "logit_bias", "allowed_token_ids", "suppress_tokens", "begin_suppress_tokens"),
    *("bad_words_ids", "forced_bos_token_id", "logits_processors", "logprobs"),
)
KEY_OF_SAMPLES = ("temperature", "top_k", "top_p", "min_p", *KEY_OF_BEAMS)


@refuses_unknown("SamplingParams has no")
@dataclass(frozen=True)
class SamplingParams:
    """How one request decodes. A field left None takes the checkpoint's generation_config.json value, if it has one.

    n: samples of one request; they share the encoder's work and the cross-attention cache.
    max_tokens: new tokens at most, the decoder prompt not counted. Without a default: all that the model has positions
        for, or 256 where positions have no bound. If the decoder prompt holds a forced ``<s>`` or language token
        (BART, mBART-50, M2M100, NLLB), transformers' max_new_tokens also counts that token: max_tokens is one less.
    min_tokens: new tokens before the end-of-sequence or a stop token may come, counted as for max_tokens.
    temperature: 0 is greedy. Default: greedy, unless generation_config.json says do_sample.
    top_k: keep the k most likely tokens (0: all); top_p: keep the smallest set with that much probability;
        min_p: drop tokens below this fraction of the most likely one's probability.
    num_beams: width of a beam search; 1 is none. Default: the checkpoint's, unless temperature or n is given.
        num_return_sequences: how many of the hypotheses are returned, best first.
    length_penalty: hypotheses are ranked by ``cumulative_logprob / length**length_penalty``: above 0 favours long ones.
    early_stopping: when a beam search ends. True: with num_beams hypotheses. False: once the best beam, scored as if it
        ended here, is behind all of them. "never": once no beam could overtake them at any length.
    patience: a beam search collects num_beams times as many hypotheses as this before it ends (Kasai et al. 2022).
    repetition_penalty: divides positive and multiplies negative logits of tokens in the decoder prompt or the output
        (Keskar et al. 2019, as in transformers). presence_penalty, frequency_penalty: subtracted once, and once an
        occurrence, from logits of tokens in the output (OpenAI's definitions).
    no_repeat_ngram_size: no run of so many tokens comes twice in decoder prompt and output; 0: any may.
        encoder_no_repeat_ngram_size: none comes that is in the encoder's prompt, special tokens included.
    logit_bias: token id -> value added to its logit.
    allowed_token_ids: only these tokens may be drawn.
    suppress_tokens: never drawn; begin_suppress_tokens: never drawn as the first new token.
    bad_words_ids: runs of tokens that never come in full. bad_words: the same as texts, forbidden at the start of a
        word and within one; they need the checkpoint's tokenizer.
    forced_bos_token_id: the first new token after a decoder prompt of one token. forced_eos_token_id: the token, or one
        of several, that comes as the last one when max_tokens is reached.
    logits_processors: called in turn as ``processor(logits, rows)`` after the suppressions above, to change logits in
        place, or to return new ones of the same shape, dtype and device: float32 [rows, vocabulary], and each row's
        SequenceData with its prompt_token_ids and output_token_ids.
        Requests with equal ones share a call, so let them be hashable and equal where they do the same. What they do
        is to depend on their arguments alone: after a failure in the batch, or a preemption, they are called again for
        the same tokens. The lists are copies; the tensor keeps its shape and memory. One that raises, or returns
        anything else, ends its request.
        NaN is not looked for; where nothing but minus infinity is left, any token may come. A beam search normalises
        what they leave.
    stop: strings that end the output (and are cut from it); stop_token_ids: tokens that end it.
    eos_token_ids: the end-of-sequence tokens. Default: the checkpoint's. ignore_eos: go on after them.
    seed: makes samples reproducible, whatever else is in the batch.
    logprobs: log probabilities of that many most likely tokens, and the drawn one, at every position. They are taken
        after penalties, bias and suppression, before temperature and truncation; a beam search takes them before all
        of these, and adds penalties and bias to the log probabilities, as transformers does.
    prompt_probe: what to read from the pass over the decoder prompt; the answer is RequestOutput.prompt_probe.
    detokenize: make text of the tokens; without it every text is empty, and stop strings are not possible.
    skip_special_tokens: leave special tokens out of the text.

    Raises ParameterError for unknown, ill-valued or contradictory parameters.
    """

    n: int = 1
    max_tokens: int | None = None
    min_tokens: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    num_beams: int | None = None
    num_return_sequences: int | None = None
    length_penalty: float | None = None
    early_stopping: bool | Literal["never"] | None = None
    patience: float = 1.0
    repetition_penalty: float | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    no_repeat_ngram_size: int | None = None
    encoder_no_repeat_ngram_size: int | None = None
    logit_bias: Mapping[int, float] | tuple[tuple[int, float], ...] = ()
    allowed_token_ids: Sequence[int] | None = None
    suppress_tokens: Sequence[int] | None = None
    begin_suppress_tokens: Sequence[int] | None = None
    bad_words_ids: Sequence[Sequence[int]] | None = None
    bad_words: str | Sequence[str] = ()
    forced_bos_token_id: int | None = None
    forced_eos_token_id: int | Sequence[int] | None = None
    logits_processors: Sequence[LogitsProcessor] = ()
    stop: str | Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    eos_token_ids: Sequence[int] | None = None
    ignore_eos: bool = False
    seed: int | None = field(default=None, compare=False)
    logprobs: int | None = None
    prompt_probe: PromptProbe | None = field(default=None, compare=False)
    detokenize: bool = True
    skip_special_tokens: bool = True

    def __post_init__(self) -> None:
        freeze = object.__setattr__  # hashable values, so that equal parameters of many requests are handled as one
        freeze(self, "logit_bias", sampling_values.logit_bias(self.logit_bias))
        freeze(self, "stop", sampling_values.texts("stop", self.stop))
        freeze(self, "bad_words", sampling_values.texts("bad_words", self.bad_words))
        freeze(self, "stop_token_ids", sampling_values.token_ids("stop_token_ids", self.stop_token_ids))
        freeze(self, "logits_processors", sampling_values.logits_processors(self.logits_processors))
        if isinstance(self.forced_eos_token_id, int):
            freeze(self, "forced_eos_token_id", (self.forced_eos_token_id,))
        for name in TOKEN_LISTS:
            value = getattr(self, name)
            freeze(self, name, None if value is None else sampling_values.token_ids(name, value))
        if self.bad_words_ids is not None:
            freeze(self, "bad_words_ids", sampling_values.bad_words_ids(self.bad_words_ids))
        self._check_types()
        self._check_ranges()
        self._check_contradictions()

    @cached_property
    def sampling_key(self) -> tuple[Hashable, ...]:
        """What a token is chosen by: requests equal in it are sampled together, whatever else they ask for.

        Meaningful once these parameters are known.
        """
        ends = (self.min_tokens, self.eos_token_ids, self.stop_token_ids) if self.min_tokens else ()
        last = (self.max_tokens, self.forced_eos_token_id) if self.forced_eos_token_id else ()
        names = KEY_OF_BEAMS if self.beam_search else KEY_OF_SAMPLES
        return (self.beam_search, ends, last, *(getattr(self, name) for name in names))

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is taken. Meaningful once the temperature is known."""
        return self.temperature == 0.0

    @property
    def beam_search(self) -> bool:
        """Whether several hypotheses are followed. Meaningful once num_beams is known."""
        return (self.num_beams or 1) > 1

    @property
    def num_hypotheses(self) -> int:
        """How many hypotheses end a beam search. Meaningful once num_beams is known."""
        return max(1, round((self.num_beams or 1) * self.patience))

    @property
    def reads_tokens(self) -> bool:
        """Whether what may be chosen depends on which tokens were chosen before, beyond how many."""
        penalized = (self.repetition_penalty or 1.0) != 1.0 or self.presence_penalty or self.frequency_penalty
        return bool(penalized or self.forbids_runs or self.logits_processors)

    @property
    def forbids_runs(self) -> bool:
        """Whether runs of tokens are forbidden. Meaningful once these parameters are known."""
        return bool(self.no_repeat_ngram_size or self.encoder_no_repeat_ngram_size or self.bad_words_ids)

    def _check_types(self) -> None:
        for name in ("ignore_eos", "detokenize", "skip_special_tokens"):
            if not isinstance(getattr(self, name), bool):
                raise ParameterError(f"{name} must be True or False, not {shown(getattr(self, name))}")
        if not isinstance(self.prompt_probe, PromptProbe | None):
            raise ParameterError(f"prompt_probe must be a PromptProbe, not {type(self.prompt_probe).__name__}")

    def _check_ranges(self) -> None:
        open_names = {each.name for each in dataclasses.fields(self) if each.default is None}  # for `complete` to fill
        unset = {name for name in open_names if getattr(self, name) is None}
        for name in [name for name in INTEGER_RANGES if name not in unset]:
            value, (low, high) = getattr(self, name), INTEGER_RANGES[name]
            if isinstance(value, bool) or not isinstance(value, Integral) or value < low:
                raise ParameterError(f"{name} must be an integer of at least {low}, not {shown(value)}")
            if int(value) > high:
                raise ParameterError(f"{name} must be at most {high}, not {shown(value)}")
        for name in [name for name in NUMBER_RANGES if name not in unset]:
            value, (lowest, highest) = getattr(self, name), NUMBER_RANGES[name]
            number = sampling_values.number(value)
            if not math.isfinite(number) or not lowest <= number <= highest:
                end = "inf)" if highest == math.inf else f"{highest:g}]"
                raise ParameterError(f"{name} must be a number in [{lowest:g}, {end}, not {shown(value)}")
            object.__setattr__(self, name, number)
        if not isinstance(self.early_stopping, bool | None) and str(self.early_stopping) != "never":
            raise ParameterError(f'early_stopping must be True, False or "never", not {shown(self.early_stopping)}')
        for name in ("top_p", "repetition_penalty", "patience"):
            if getattr(self, name) == 0:
                raise ParameterError(f"{name} must be above 0")

    def _check_contradictions(self) -> None:
        if self.max_tokens is not None and (self.min_tokens or 0) > self.max_tokens:
            raise ParameterError(f"min_tokens={self.min_tokens} is over max_tokens={self.max_tokens}")
        if self.stop and not self.detokenize:
            raise ParameterError(
                "stop strings are looked for in the text; leave detokenize True, or use stop_token_ids"
            )
        if self.beam_search:
            self._check_beam_search()
        elif self.num_beams is not None and (self.num_return_sequences or 1) > 1:
            raise ParameterError(
                f"num_return_sequences={self.num_return_sequences} needs a beam search of at least that width; "
                f"set num_beams, or draw samples with n={self.num_return_sequences}"
            )
        if self.temperature == 0.0:
            for name, neutral in (("n", 1), ("top_k", 0), ("top_p", 1.0), ("min_p", 0.0)):
                value = getattr(self, name)
                if value is not None and value != neutral:
                    raise ParameterError(
                        f"temperature=0 is greedy, so {name}={value} has no meaning; set temperature above 0 to sample"
                    )
        self._check_allowed()

    def _check_beam_search(self) -> None:
        width = f"num_beams={self.num_beams}"
        if self.temperature:
            raise ParameterError(
                f"{width} searches without chance, so temperature={self.temperature} has no meaning; "
                "set num_beams=1 to sample, or temperature=0"
            )
        if self.n > 1:
            raise ParameterError(f"n counts samples; for {self.n} hypotheses of {width} set num_return_sequences")
        if (self.num_return_sequences or 1) > (self.num_beams or 1):
            raise ParameterError(f"num_return_sequences={self.num_return_sequences} is over {width}")
        if (self.num_return_sequences or 1) > self.num_hypotheses:
            raise ParameterError(
                f"patience={self.patience} ends a search of {width} with {self.num_hypotheses} hypotheses, and "
                f"num_return_sequences={self.num_return_sequences} are asked for; set patience=1, or ask for fewer"
            )
        if self.stop:
            raise ParameterError(f"stop strings do not go with {width}; use stop_token_ids, or num_beams=1")

    def _check_allowed(self) -> None:
        """Raise ParameterError unless something is left to draw at every position."""
        if self.allowed_token_ids is None:
            return
        left = {*self.allowed_token_ids}.difference(self.suppress_tokens or (), self.begin_suppress_tokens or ())
        if not left:
            raise ParameterError("allowed_token_ids leaves no token: it is empty or all of it is suppressed")
        if self.min_tokens and not left.difference(self.stop_token_ids, self.eos_token_ids or ()):
            raise ParameterError(
                "allowed_token_ids leaves only tokens that end the output, and min_tokens forbids them"
            )
