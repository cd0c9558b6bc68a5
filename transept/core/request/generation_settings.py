"""Check a generation config when it is loaded, so that its faults do not appear in a request first.

Checks only the settings that `generation_defaults` reads, and sampling settings only with do_sample.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from transept.core.request.cutoffs import NEUTRAL
from transept.core.request.sampling_params import SamplingParams
from transept.core.request.score_options import NO_RULE
from transept.errors import CheckpointError, ParameterError

OF_SAMPLING = ("temperature", *NEUTRAL)
OF_EVERY_REQUEST = (
    "num_beams",
    "num_return_sequences",
    "num_beam_groups",
    "diversity_penalty",
    "length_penalty",
    "early_stopping",
    "repetition_penalty",
    "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size",
    "max_time",
    "stop_strings",
    *NO_RULE,
)
LENGTHS = ("max_length", "max_new_tokens", "min_length", "min_new_tokens")
CONTROL_TOKENS = ("bos_token_id", "decoder_start_token_id", "eos_token_id", "forced_bos_token_id", "pad_token_id")
TOKENS = (*CONTROL_TOKENS, "forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens")


def check_generation_settings(settings: Mapping[str, Any], file: Path) -> None:
    """Raise CheckpointError, naming the key, for an invalid value.

    settings: from a transformers GenerationConfig. file: their source, for the message.
    """
    do_sample = settings.get("do_sample")
    if not isinstance(do_sample, bool | None):
        raise CheckpointError(f'"{file}": do_sample must be true or false, not {do_sample!r}')
    for name in (*OF_EVERY_REQUEST, *(OF_SAMPLING if do_sample else ())):
        one: dict[str, Any] = {} if settings.get(name) is None else {name: settings[name]}
        try:
            SamplingParams(**one)
        except ParameterError as error:
            raise CheckpointError(f'"{file}": {error}') from None
    for name in LENGTHS:
        value = settings.get(name)
        if value is not None and (not _is_integer(value) or value < 0):
            raise CheckpointError(f'"{file}": {name} must be an integer of at least 0, not {value!r}')
    check_token_ids(settings, TOKENS, file)
    words = settings.get("bad_words_ids")
    if words is not None and not (isinstance(words, list) and all(word and _are_tokens(word) for word in words)):
        raise CheckpointError(f'"{file}": bad_words_ids must be a list of lists of token ids, not {words!r}')


def check_token_ids(settings: Mapping[str, Any], names: Iterable[str], file: Path) -> None:
    """Raise CheckpointError unless each setting is a token id, a list of token ids, or null."""
    for name in names:
        value = settings.get(name)
        if value is not None and not _is_integer(value) and not _are_tokens(value):
            raise CheckpointError(f'"{file}": {name} must be a token id or a list of them, not {value!r}')


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _are_tokens(value: object) -> bool:
    return isinstance(value, list | tuple) and all(_is_integer(token) for token in value)
