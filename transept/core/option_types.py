"""Types of the keywords of public calls, for type checkers and editors; nothing imports them as it runs.

Generated from the declarations of options by `make option-types`; do not edit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict

import torch

from transept.core.parallel.launcher import Launcher
from transept.core.request.limits import Limits


class LimitKeywords(TypedDict, total=False):
    """The options of Limits."""

    max_audio_seconds: float | None
    max_audio_bytes: int | None
    max_stream_bytes: int | None
    max_decoded_bytes: int | None
    max_text_characters: int | None
    max_queue_length: int | None


class EngineKeywords(TypedDict, total=False):
    """The options of an Engine."""

    device: str
    dtype: Literal["auto", "float32", "bfloat16", "float16", "half"] | torch.dtype
    attention_backend: str
    quantization: Literal["int8", "fp8"] | None
    tensor_parallel_size: int
    pipeline_parallel_size: int
    worker_timeout: float | None
    launcher: Launcher | None
    threads: int | None
    plugin: str | None
    model_dir: str | os.PathLike[str] | None
    offline: bool
    block_size: int
    kv_cache_dtype: Literal["auto", "fp8"]
    kv_cache_bytes: int | None
    gpu_memory_utilization: float
    swap_bytes: int
    enforce_eager: bool
    max_num_seqs: int
    max_decoder_tokens: int | None
    max_encoder_tokens: int | None
    encoder_layers_per_step: int | None
    limits: Limits | LimitKeywords
    torch_dtype: Literal["auto", "float32", "bfloat16", "float16", "half"] | torch.dtype
    fp16: bool
    compute_type: Literal[
        "default", "auto", "float32", "float16", "bfloat16", "int8", "int8_float32", "int8_float16", "int8_bfloat16"
    ]
    num_threads: int | None
    cpu_threads: int | None
    download_root: str | os.PathLike[str] | None
    download_dir: str | os.PathLike[str] | None
    cache_dir: str | os.PathLike[str] | None
    local_files_only: bool


class SingleTextKeywords(TypedDict, total=False):
    """The options of SamplingParams that a call with one text as its result takes."""

    n: int
    max_tokens: int | None
    min_tokens: int | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    num_beams: int | None
    num_return_sequences: int | None
    length_penalty: float | None
    early_stopping: bool | Literal["never"] | None
    patience: float
    repetition_penalty: float | None
    presence_penalty: float
    frequency_penalty: float
    no_repeat_ngram_size: int | None
    encoder_no_repeat_ngram_size: int | None
    logit_bias: Mapping[int, float] | Sequence[tuple[int, float]]
    allowed_token_ids: Sequence[int] | None
    suppress_tokens: Sequence[int] | None
    begin_suppress_tokens: Sequence[int] | None
    bad_words_ids: Sequence[Sequence[int]] | None
    bad_words: str | Sequence[str]
    forced_bos_token_id: int | None
    forced_eos_token_id: int | Sequence[int] | None
    logits_processors: Sequence[Callable[[Any, Sequence[Any]], Any]]
    stop: str | Sequence[str]
    stop_token_ids: Sequence[int]
    eos_token_ids: Sequence[int] | None
    ignore_eos: bool
    seed: int | None
    detokenize: bool
    skip_special_tokens: bool
    max_new_tokens: int | None
    max_completion_tokens: int | None
    min_new_tokens: int | None
    beam_size: int | None
    stop_strings: str | Sequence[str]
