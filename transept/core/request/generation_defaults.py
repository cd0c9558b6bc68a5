"""Complete a request's sampling parameters with the checkpoint's settings.

The input processor calls `complete` once for each request. The rules are transformers' (`generate`), for which the
settings were written. No torch here.
"""

from __future__ import annotations

import copy
import dataclasses
import operator
import secrets
from collections.abc import Sequence
from numbers import Integral
from typing import Any

from transept.core.request.cutoffs import NEUTRAL
from transept.core.request.keywords import Keywords
from transept.core.request.sampling_params import SamplingParams
from transept.core.request.score_options import NO_RULE, biased
from transept.options import refusal

UNBOUNDED_MAX_TOKENS = 256  # if neither the model nor its generation config sets a bound
DEFAULT_TOP_K = 50  # transformers' default for a checkpoint that samples and has no top_k

FORBIDDING = (  # settings that forbid tokens
    *("min_length", "min_new_tokens", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "bad_words_ids"),
    *("suppress_tokens", "begin_suppress_tokens", "remove_invalid_values"),
)


def complete(
    params: SamplingParams,
    generation_config: Any,
    *,
    prompt_token_ids: Sequence[int],
    max_positions: int | None,
    vocab_size: int,
    eos_token_ids: Sequence[int] = (),
) -> SamplingParams:
    """Fill parameters without a value from the checkpoint's settings.

    generation_config: a transformers GenerationConfig or a PlainConfig. prompt_token_ids: the decoder prompt.
    max_positions: number of decoder positions for prompt and output together; None: no bound.
    vocab_size: of the model. Larger token ids of the generation config are dropped, as in transformers.
    eos_token_ids: end-of-sequence tokens if neither params nor generation_config has any.
    A request that samples without a seed gets a random one. Raises ParameterError if the completed parameters
    contradict each other or the vocabulary.
    """
    _check_vocabulary(params, vocab_size)
    if params.guided is not None:
        generation_config = _for_any_form(generation_config)

    def given(name: str, neutral: Any) -> Any:
        """Return the user's value, else the checkpoint's, else the neutral one."""
        own = getattr(params, name)
        own = getattr(generation_config, name, None) if own is None else own
        return neutral if own is None else own

    def cutoff(name: str, neutral: Any) -> Any:
        """Return the user's value, else the checkpoint's if it samples, else the neutral one."""
        if sampled:
            return given(name, DEFAULT_TOP_K if name == "top_k" else neutral)
        own = getattr(params, name)
        return neutral if own is None else own

    def known(name: str) -> tuple[int, ...]:
        """Return the user's token ids, else the checkpoint's that are in the vocabulary."""
        own = getattr(params, name)
        if own is not None:
            return (operator.index(own),) if isinstance(own, Integral) else tuple(own)
        return within_vocabulary(getattr(generation_config, name, None), vocab_size)

    num_beams = _num_beams(params, generation_config)
    temperature = _temperature(params, generation_config)
    num_groups = params.num_beam_groups or 1
    if num_beams > 1 and temperature == 0.0:  # else a checkpoint's groups are not used
        num_groups = given("num_beam_groups", 1)
    sampled = temperature > 0.0 and bool(getattr(generation_config, "do_sample", False))
    forced_bos = known("forced_bos_token_id")
    num_forced = num_forced_tokens(prompt_token_ids, forced_bos[0] if forced_bos else None)
    if params.eos_token_ids is None:
        of_config = within_vocabulary(getattr(generation_config, "eos_token_id", None), vocab_size)
        eos_token_ids = of_config or tuple(eos_token_ids)
    else:
        eos_token_ids = tuple(params.eos_token_ids)
    rules = {name: given(name, neutral) for name, neutral in NO_RULE.items()}
    rules["sequence_bias"] = _known_runs(rules["sequence_bias"], params, vocab_size)
    decay = rules["exponential_decay_length_penalty"]
    if decay is not None and params.exponential_decay_length_penalty is None:
        rules["exponential_decay_length_penalty"] = (decay[0] - num_forced, decay[1])
    max_tokens = _max_tokens(params, generation_config, len(prompt_token_ids), num_forced, max_positions)
    min_tokens = params.min_tokens
    if min_tokens is None:
        min_tokens = min(_min_tokens(generation_config, len(prompt_token_ids), num_forced), max_tokens)
    return dataclasses.replace(
        params,
        max_tokens=max_tokens,
        min_tokens=min_tokens,
        temperature=temperature,
        **{name: cutoff(name, neutral) for name, neutral in NEUTRAL.items()},
        **rules,
        max_time=given("max_time", None),
        stop=params.stop or (getattr(generation_config, "stop_strings", None) if params.detokenize else None) or (),
        num_beams=num_beams,
        num_beam_groups=num_groups,
        diversity_penalty=given("diversity_penalty", 0.0) if num_groups > 1 else params.diversity_penalty or 0.0,
        num_return_sequences=params.num_return_sequences or min(num_beams, given("num_return_sequences", 1)),
        length_penalty=given("length_penalty", 1.0),
        early_stopping=given("early_stopping", False),
        repetition_penalty=given("repetition_penalty", 1.0),
        no_repeat_ngram_size=given("no_repeat_ngram_size", 0),
        encoder_no_repeat_ngram_size=given("encoder_no_repeat_ngram_size", 0),
        suppress_tokens=known("suppress_tokens"),
        begin_suppress_tokens=known("begin_suppress_tokens"),
        bad_words_ids=_bad_words_ids(given("bad_words_ids", ()), eos_token_ids),
        forced_bos_token_id=forced_bos[0] if forced_bos else None,
        forced_eos_token_id=known("forced_eos_token_id"),
        eos_token_ids=eos_token_ids,
        seed=secrets.randbits(63) if params.seed is None and temperature > 0.0 else params.seed,
    )


def _for_any_form(generation_config: Any) -> Any:
    """Return the checkpoint's settings without those that forbid tokens, for an output whose form the user gives.

    Those are meant for plain sentences: Whisper's suppress quotation marks and brackets.
    """
    settings = copy.copy(generation_config)
    for name in FORBIDDING:
        if getattr(settings, name, None):
            setattr(settings, name, None)
    return settings


def within_vocabulary(token_ids: Sequence[int] | int | None, vocab_size: int) -> tuple[int, ...]:
    """Return the token ids of a setting, of which it may have one, several or none, that are below `vocab_size`."""
    tokens = (token_ids,) if isinstance(token_ids, int) else token_ids or ()
    return tuple(token for token in tokens if 0 <= token < vocab_size)


def num_forced_tokens(prompt_token_ids: Sequence[int], forced_bos_token_id: int | None) -> int:
    """Number of tokens of the decoder prompt that transformers counts as new: 1 for BART's ``<DEC><BOS>``, else 0.

    For such prompts transformers' ``generate`` starts from ``<DEC>`` alone and forces the BOS token as the first new
    one. Lengths in the checkpoint's settings, and the length that ranks hypotheses, include it.
    """
    return int(forced_bos_token_id is not None and list(prompt_token_ids[1:]) == [forced_bos_token_id])


def tokenize_bad_words(params: SamplingParams, tokenizer: Any | None) -> SamplingParams:
    """Turn bad_words into bad_words_ids: each text as a separate word, after a space, and as a part of a word.

    Raises ParameterError if the checkpoint has no tokenizer.
    """
    if not params.bad_words:
        return params
    if tokenizer is None:
        raise refusal(params, "{bad_words} need a tokenizer, which this checkpoint lacks; pass {bad_words_ids}")
    texts = [text for word in params.bad_words for text in (word, f" {word}")]
    runs = {tuple(tokenizer(text, add_special_tokens=False).input_ids): None for text in texts}
    words = (*(params.bad_words_ids or ()), *(run for run in runs if run))
    return dataclasses.replace(params, bad_words=(), bad_words_ids=words)


def tokenize_draft(params: SamplingParams, tokenizer: Any | None) -> SamplingParams:
    """Turn a text in draft_tokens into token ids. Raises ParameterError if the checkpoint has no tokenizer."""
    if not isinstance(params.draft_tokens, str):
        return params
    if tokenizer is None:
        raise refusal(params, "{draft_tokens} is a text, but this checkpoint has no tokenizer; pass token ids")
    token_ids = tokenizer(params.draft_tokens, add_special_tokens=False).input_ids
    return dataclasses.replace(params, draft_tokens=tuple(token_ids))


def _num_beams(params: SamplingParams, generation_config: Any) -> int:
    if params.num_beams is not None:
        return params.num_beams
    if params.temperature is not None or params.n > 1:
        return 1  # the user requests greedy decoding or samples
    return getattr(generation_config, "num_beams", None) or 1


def _temperature(params: SamplingParams, generation_config: Any) -> float:
    temperature = params.temperature
    if temperature is None:
        sampled = bool(getattr(generation_config, "do_sample", False))
        temperature = float(getattr(generation_config, "temperature", None) or 1.0) if sampled else 0.0
    for name, neutral in {**NEUTRAL, "n": 1}.items():
        if temperature == 0.0 and getattr(params, name) not in (None, neutral):
            raise refusal(
                params,
                f"{{{name}=}} needs sampling, but this model decodes greedily by default; set {{temperature}} above 0, "
                "such as {temperature=1.0}",
            )
    return temperature


def _max_tokens(
    params: SamplingParams, generation_config: Any, prompt_length: int, num_forced: int, max_positions: int | None
) -> int:
    """Return the user's limit, else the checkpoint's, else the number of free positions; at most that number."""
    wanted = params.max_tokens
    if wanted is None and getattr(generation_config, "max_new_tokens", None):
        wanted = max(1, generation_config.max_new_tokens - num_forced)
    if wanted is None and getattr(generation_config, "max_length", None):
        wanted = max(1, generation_config.max_length - prompt_length)  # max_length counts the decoder prompt
    if max_positions is None:
        return wanted or UNBOUNDED_MAX_TOKENS
    room = max_positions - prompt_length
    return room if wanted is None else min(wanted, room)


def _min_tokens(generation_config: Any, prompt_length: int, num_forced: int) -> int:
    new_tokens = getattr(generation_config, "min_new_tokens", None)
    if new_tokens is not None:
        return max(0, new_tokens - num_forced)
    return max(0, (getattr(generation_config, "min_length", None) or 0) - prompt_length)


def _known_runs(bias: Any, params: SamplingParams, vocab_size: int) -> Any:
    """Return the biases of sequences without a setting's sequences that the vocabulary lacks."""
    if params.sequence_bias is not None or not bias:
        return bias
    return tuple((tokens, value) for tokens, value in biased(bias) if max(tokens, default=0) < vocab_size)


def _bad_words_ids(words: Sequence[Sequence[int]], eos_token_ids: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Remove sequences of a single end-of-sequence token, as transformers does."""
    return tuple(tuple(word) for word in words if not (len(word) == 1 and word[0] in eos_token_ids))


def _check_vocabulary(params: SamplingParams, vocab_size: int) -> None:
    forced_bos = params.forced_bos_token_id
    given = {
        "logit_bias": list(dict(params.logit_bias)),
        "allowed_token_ids": params.allowed_token_ids or (),
        "suppress_tokens": params.suppress_tokens or (),
        "begin_suppress_tokens": params.begin_suppress_tokens or (),
        "sequence_bias": [token for word, _ in params.sequence_bias or () for token in word],
        "bad_words_ids": [token for word in params.bad_words_ids or () for token in word],
        "keywords": params.keywords.token_ids if isinstance(params.keywords, Keywords) else (),
        "forced_bos_token_id": () if forced_bos is None else (forced_bos,),
        "forced_eos_token_id": params.forced_eos_token_id or (),
        "eos_token_ids": params.eos_token_ids or (),
        "stop_token_ids": params.stop_token_ids,
        "draft_tokens": () if isinstance(params.draft_tokens, str) else params.draft_tokens or (),
    }
    if len({*given["suppress_tokens"], *given["begin_suppress_tokens"]}) >= vocab_size:  # type: ignore[misc]
        message = f"{{suppress_tokens}} and {{begin_suppress_tokens}} leave none of this model's {vocab_size} tokens"
        raise refusal(params, message)
    for name, tokens in given.items():
        if tokens and max(tokens) >= vocab_size:  # type: ignore[arg-type]
            most = max(tokens)  # type: ignore[arg-type]
            raise refusal(params, f"{{{name}}} holds {most}; this model's token ids end at {vocab_size - 1}")
    if params.logprobs is not None and params.logprobs > vocab_size:
        raise refusal(params, f"{{logprobs=}} is more than the {vocab_size} tokens that this model has")
