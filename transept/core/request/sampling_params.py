"""SamplingParams: the parameters by which one request's tokens are chosen and by which it ends.

Users make them, and `generation_defaults.complete` fills in the checkpoint's settings. The sampler, the beam search and
the stop checker read them. No torch here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, Literal, Unpack

from transept.core.request import beam_options, cutoffs, score_options
from transept.core.request import sampling_values as values
from transept.core.request.contradictions import check_contradictions
from transept.core.request.draft_options import DRAFT, DRAFT_LENGTH, DRAFT_TOKENS, GivenDraft
from transept.core.request.guided import GUIDED, Grammar, Guide
from transept.core.request.keywords import DEFAULT_BOOST, KEYWORD_BOOST, KEYWORDS, GivenKeywords
from transept.core.request.prompt_probe import PromptProbe
from transept.core.request.sampling_values import LogitsProcessor as LogitsProcessor
from transept.errors import CapacityError
from transept.options import (
    MAX_INTEGER,
    MAX_SEED,
    Option,
    declares_options,
    take_options,
)

if TYPE_CHECKING:
    from transept.core.request.option_types import SamplingKeywords

_integer = partial(Option, le=MAX_INTEGER)
_count = partial(_integer, metavar="N")

# Parameters that the sampler reads, besides those that `sampling_key` adds conditionally.
KEY_OF_BEAMS = (
    *("repetition_penalty", "presence_penalty", "frequency_penalty", "no_repeat_ngram_size"),
    *("encoder_no_repeat_ngram_size", "logit_bias", "allowed_token_ids", "suppress_tokens", "begin_suppress_tokens"),
    *("bad_words_ids", "forced_bos_token_id", "logits_processors", "allowed_next_tokens", "logprobs", "keywords"),
    *score_options.NO_RULE,
)
KEY_OF_SAMPLES = ("temperature", *cutoffs.NEUTRAL, *KEY_OF_BEAMS)


@declares_options("SamplingParams has no")
@dataclass(frozen=True)
class SamplingParams:
    """Decoding parameters of one request. The checkpoint's generation_config.json sets fields without a value.

    Raises ParameterError for unknown, invalid or contradictory parameters.
    """

    n: Annotated[
        int, _count("samples of one request", "They share the encoder's work and the cross-attention cache.", ge=1)
    ] = 1
    max_tokens: Annotated[
        int | None,
        _count(
            "new tokens of a text at most",
            "The decoder prompt is not counted. If the checkpoint has no default: as many as the model has positions, "
            "or 256 if positions have no bound. If the decoder prompt holds a forced ``<s>`` or language token (BART, "
            "mBART-50, M2M100, NLLB), transformers' max_new_tokens also counts that token: max_tokens is one less.",
            aliases=("max_new_tokens", "max_completion_tokens"),
            flag="max_new_tokens",
            ge=1,
        ),
    ] = None
    max_time: Annotated[float | None, score_options.MAX_TIME] = None
    min_tokens: Annotated[
        int | None,
        _count(
            "new tokens of a text at least",
            "No end-of-sequence or stop token may come before that. Counted as for max_tokens.",
            aliases=("min_new_tokens",),
            flag="min_new_tokens",
            ge=0,
        ),
    ] = None
    temperature: Annotated[float | None, cutoffs.TEMPERATURE] = None
    top_k: Annotated[int | None, cutoffs.TOP_K] = None
    top_p: Annotated[float | None, cutoffs.TOP_P] = None
    min_p: Annotated[float | None, cutoffs.MIN_P] = None
    typical_p: Annotated[float | None, cutoffs.TYPICAL_P] = None
    epsilon_cutoff: Annotated[float | None, cutoffs.EPSILON_CUTOFF] = None
    eta_cutoff: Annotated[float | None, cutoffs.ETA_CUTOFF] = None
    top_h: Annotated[float | None, cutoffs.TOP_H] = None
    num_beams: Annotated[int | None, beam_options.NUM_BEAMS] = None
    num_beam_groups: Annotated[int | None, beam_options.NUM_BEAM_GROUPS] = None
    diversity_penalty: Annotated[float | None, beam_options.DIVERSITY_PENALTY] = None
    num_return_sequences: Annotated[int | None, beam_options.NUM_RETURN_SEQUENCES] = None
    length_penalty: Annotated[float | None, beam_options.LENGTH_PENALTY] = None
    early_stopping: Annotated[bool | Literal["never"] | None, beam_options.EARLY_STOPPING] = None
    patience: Annotated[float, beam_options.PATIENCE] = 1.0
    repetition_penalty: Annotated[
        float | None,
        Option(
            "divides positive and multiplies negative logits of earlier tokens",
            "Tokens of the decoder prompt and of the output count (Keskar et al. 2019, as in transformers).",
            metavar="X",
            gt=0,
        ),
    ] = None
    presence_penalty: Annotated[
        float, Option("subtracted from the logits of tokens in the output", "As OpenAI defines it.", ge=-2, le=2)
    ] = 0.0
    frequency_penalty: Annotated[
        float,
        Option(
            "subtracted, once for each occurrence, from the logits of tokens in the output",
            "As OpenAI defines it.",
            ge=-2,
            le=2,
        ),
    ] = 0.0
    no_repeat_ngram_size: Annotated[
        int | None,
        _count(
            "let no sequence of this many tokens occur twice in a text",
            "The decoder prompt counts as well. 0: no limit.",
            ge=0,
        ),
    ] = None
    encoder_no_repeat_ngram_size: Annotated[
        int | None,
        _integer(
            "write no sequence of this many tokens that the encoder's prompt contains", "Special tokens included.", ge=0
        ),
    ] = None
    encoder_repetition_penalty: Annotated[float | None, score_options.ENCODER_REPETITION_PENALTY] = None
    exponential_decay_length_penalty: Annotated[Sequence[float] | None, score_options.EXPONENTIAL_DECAY] = None
    remove_invalid_values: Annotated[bool | None, score_options.REMOVE_INVALID_VALUES] = None
    renormalize_logits: Annotated[bool | None, score_options.RENORMALIZE_LOGITS] = None
    sequence_bias: Annotated[Sequence[tuple[Sequence[int], float]] | None, score_options.SEQUENCE_BIAS] = None
    logit_bias: Annotated[
        Mapping[int, float] | tuple[tuple[int, float], ...],
        Option("token id -> value added to its logit", parse=values.logit_bias),
    ] = ()
    allowed_token_ids: Annotated[
        Sequence[int] | None, Option("only these tokens may be drawn", parse=values.token_ids)
    ] = None
    suppress_tokens: Annotated[Sequence[int] | None, Option("tokens that are never drawn", parse=values.token_ids)] = (
        None
    )
    begin_suppress_tokens: Annotated[
        Sequence[int] | None, Option("tokens that are never drawn as the first new token", parse=values.token_ids)
    ] = None
    bad_words_ids: Annotated[
        Sequence[Sequence[int]] | None, Option("token sequences never to write in full", parse=values.bad_words_ids)
    ] = None
    bad_words: Annotated[str | Sequence[str], values.BAD_WORDS] = ()
    keywords: Annotated[GivenKeywords, KEYWORDS] = ()
    keyword_boost: Annotated[float, KEYWORD_BOOST] = DEFAULT_BOOST
    forced_bos_token_id: Annotated[
        int | None, _integer("the first new token after a decoder prompt of one token", ge=0)
    ] = None
    forced_eos_token_id: Annotated[
        int | Sequence[int] | None,
        Option("the last token, or one of several, if max_tokens is reached", parse=values.one_or_more_ids),
    ] = None
    guided: Annotated[Guide | Grammar | None, GUIDED] = None
    logits_processors: Annotated[
        Sequence[LogitsProcessor],
        Option(
            "functions that change logits before a token is chosen",
            "See LogitsProcessor.",
            parse=values.logits_processors,
        ),
    ] = ()
    allowed_next_tokens: Annotated[
        Callable[..., Sequence[int]] | None,
        Option(
            "function of a text's tokens that returns the tokens that may follow",
            "It gets the decoder prompt and the output, and is applied after normalization, so beams are ranked as by "
            "transformers' prefix_allowed_tokens_fn. A function with two required positional arguments is called as by "
            "transformers, with batch id 0. It must be hashable, and depend on its arguments alone; see also "
            "LogitsProcessor.",
            aliases=("prefix_allowed_tokens_fn",),
            parse=values.function_of_tokens,
        ),
    ] = None
    stop: Annotated[
        str | Sequence[str],
        Option(
            "strings that end the output, and are cut from it",
            aliases=("stop_strings",),
            metavar="TEXT",
            repeats=True,
            parse=values.texts,
        ),
    ] = ()
    stop_token_ids: Annotated[Sequence[int], Option("tokens that end the output", parse=values.token_ids)] = ()
    stop_at_repetition: Annotated[
        int | None,
        _count(
            "end the output once a run of at least this many tokens occurs twice in succession",
            "The runs stay in the output. Not for beam searches and keywords.",
            ge=1,
        ),
    ] = None
    eos_token_ids: Annotated[
        Sequence[int] | None, Option("the end-of-sequence tokens", "Default: the checkpoint's.", parse=values.token_ids)
    ] = None
    ignore_eos: Annotated[bool, Option("go on after end-of-sequence tokens")] = False
    seed: Annotated[
        int | None,
        Option("makes samples reproducible", "Other requests do not change them.", metavar="N", ge=0, le=MAX_SEED),
    ] = field(default=None, compare=False)
    logprobs: Annotated[
        int | None,
        _integer(
            "log probabilities of this many most likely tokens, and of the drawn one, at every position",
            "They are taken after penalties, bias and suppression, before temperature and truncation; a beam search "
            "takes them before all of these, and then adds penalties and bias, as transformers does.",
            ge=1,
        ),
    ] = None
    draft: Annotated[Literal["lookup"] | None, DRAFT] = field(default=None, compare=False)
    draft_tokens: Annotated[GivenDraft | None, DRAFT_TOKENS] = field(default=None, compare=False)
    draft_length: Annotated[int | None, DRAFT_LENGTH] = field(default=None, compare=False)
    prompt_probe: Annotated[
        PromptProbe | None,
        Option(
            "what to read from the pass over the decoder prompt",
            "The answer is RequestOutput.prompt_probe.",
            wanted="a PromptProbe or None",
        ),
    ] = field(default=None, compare=False)
    detokenize: Annotated[
        bool, Option("decode the tokens to text", "Without it every text is empty, and stop strings are not possible.")
    ] = True
    skip_special_tokens: Annotated[bool, Option("leave special tokens out of the text")] = True

    if TYPE_CHECKING:

        def __init__(self, **parameters: Unpack[SamplingKeywords]) -> None:
            """Aliases are parameters as well."""

    def __post_init__(self) -> None:
        take_options(self)
        check_contradictions(self)

    @cached_property
    def sampling_key(self) -> tuple[Hashable, ...]:
        """Key of all parameters by which a token is chosen. Requests with equal keys are sampled together.

        Valid once the parameters are complete, like the properties below.
        """
        ends: tuple[Hashable, ...] = ()
        if self.guided is not None:  # rows may have different ones
            ends = ("guided", self.eos_token_ids)
        elif self.min_tokens or self.exponential_decay_length_penalty:
            ends = (self.min_tokens, self.eos_token_ids, self.stop_token_ids)
        last = (self.max_tokens, self.forced_eos_token_id) if self.forced_eos_token_id else ()
        names = KEY_OF_BEAMS if self.beam_search and not self.draws_beams else KEY_OF_SAMPLES
        kind = self.num_continuations if self.draws_beams else self.beam_search
        return (kind, ends, last, *(getattr(self, name) for name in names))

    @property
    def greedy(self) -> bool:
        """True if the most likely token is taken."""
        return self.temperature == 0.0

    @property
    def beam_search(self) -> bool:
        """True if the request uses beam search."""
        return (self.num_beams or 1) > 1

    @property
    def draws_beams(self) -> bool:
        """True if a beam search draws its beams."""
        return self.beam_search and bool(self.temperature)

    @property
    def diverse_beams(self) -> bool:
        """True if a beam search has several groups of beams."""
        return self.beam_search and (self.num_beam_groups or 1) > 1

    @property
    def num_continuations(self) -> int:
        """Number of next tokens of a beam of which at least one does not end it, and at least 2, as in transformers."""
        num_ends = len({*(() if self.ignore_eos else self.eos_token_ids or ()), *self.stop_token_ids})
        return max(2, 1 + num_ends)

    @property
    def num_hypotheses(self) -> int:
        """Number of hypotheses that a beam search collects."""
        return max(1, round((self.num_beams or 1) * self.patience))

    @property
    def reads_tokens(self) -> bool:
        """True if the choice of a token depends on earlier tokens, and not only on their number."""
        penalized = (self.repetition_penalty or 1.0) != 1.0 or self.presence_penalty or self.frequency_penalty
        runs = self.forbids_runs or any(len(tokens) > 1 for tokens, _ in self.sequence_bias or ())
        functions = self.logits_processors or self.allowed_next_tokens
        return bool(penalized or runs or functions or self.keywords or self.guided)

    @property
    def reads_encoder_tokens(self) -> bool:
        """True if the choice of a token depends on the encoder's prompt."""
        return bool(self.encoder_no_repeat_ngram_size) or (self.encoder_repetition_penalty or 1.0) != 1.0

    @property
    def forbids_runs(self) -> bool:
        """True if sequences of tokens are forbidden."""
        return bool(self.no_repeat_ngram_size or self.encoder_no_repeat_ngram_size or self.bad_words_ids)

    def check_width(self, most: int) -> None:
        """Raise CapacityError for more samples or beams than an engine computes at a time. most: its max_num_seqs."""
        width, name = max(self.n, self.num_beams or 1), "num_beams" if self.beam_search else "n"
        if width > most:
            raise CapacityError(
                f"the request needs {width} sequences at a time, but {{max_num_seqs}} is {most}. Lower {{{name}}}, or "
                f"raise {{max_num_seqs}} to {width}.",
                param=name,
                others=["max_num_seqs"],
            )
