"""Types of the keywords of public calls, for type checkers and editors; never imported at run time.

Generated from the declarations of options by `make option-types`; do not edit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from transept.core.request.guided import Grammar, Guide
from transept.core.request.prompt_probe import PromptProbe


class SingleTextKeywords(TypedDict, total=False):
    """The options of SamplingParams for a call that returns one text."""

    n: int
    max_tokens: int | None
    max_time: float | None
    min_tokens: int | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    typical_p: float | None
    epsilon_cutoff: float | None
    eta_cutoff: float | None
    top_h: float | None
    num_beams: int | None
    num_beam_groups: int | None
    diversity_penalty: float | None
    num_return_sequences: int | None
    length_penalty: float | None
    early_stopping: bool | Literal["never"] | None
    patience: float
    repetition_penalty: float | None
    presence_penalty: float
    frequency_penalty: float
    no_repeat_ngram_size: int | None
    encoder_no_repeat_ngram_size: int | None
    encoder_repetition_penalty: float | None
    exponential_decay_length_penalty: Sequence[float] | None
    remove_invalid_values: bool | None
    renormalize_logits: bool | None
    sequence_bias: Sequence[tuple[Sequence[int], float]] | Mapping[Sequence[int], float] | None
    logit_bias: Mapping[int, float] | Sequence[tuple[int, float]]
    allowed_token_ids: Sequence[int] | None
    suppress_tokens: Sequence[int] | None
    begin_suppress_tokens: Sequence[int] | None
    bad_words_ids: Sequence[Sequence[int]] | None
    bad_words: str | Sequence[str]
    keywords: (
        Mapping[str, float] | Sequence[str | Sequence[int] | tuple[str | Sequence[int], float | None]] | str | None
    )
    keyword_boost: float
    forced_bos_token_id: int | None
    forced_eos_token_id: int | Sequence[int] | None
    guided: Guide | Grammar | Mapping[str, Any] | Sequence[str] | str | None
    logits_processors: Sequence[Callable[[Any, Sequence[Any]], Any]]
    allowed_next_tokens: Callable[..., Sequence[int]] | None
    stop: str | Sequence[str]
    stop_token_ids: Sequence[int]
    stop_at_repetition: int | None
    eos_token_ids: Sequence[int] | None
    ignore_eos: bool
    seed: int | None
    draft: Literal["lookup"] | None
    draft_tokens: Sequence[int] | str | None
    draft_length: int | None
    detokenize: bool
    skip_special_tokens: bool
    max_new_tokens: int | None
    max_completion_tokens: int | None
    min_new_tokens: int | None
    beam_size: int | None
    guided_choice: Guide | Grammar | Mapping[str, Any] | Sequence[str] | str | None
    guided_regex: Guide | Grammar | Mapping[str, Any] | Sequence[str] | str | None
    guided_json: Guide | Grammar | Mapping[str, Any] | Sequence[str] | str | None
    guided_grammar: Guide | Grammar | Mapping[str, Any] | Sequence[str] | str | None
    structured_outputs: Guide | Grammar | Mapping[str, Any] | Sequence[str] | str | None
    prefix_allowed_tokens_fn: Callable[..., Sequence[int]] | None
    stop_strings: str | Sequence[str]


class SamplingKeywords(SingleTextKeywords, total=False):
    """The options of SamplingParams."""

    logprobs: int | None
    prompt_probe: PromptProbe | None
