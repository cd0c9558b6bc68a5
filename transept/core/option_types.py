"""Types of the keywords of public calls, for type checkers and editors; never imported at run time.

Generated from the declarations of options by `make option-types`; do not edit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal, TypedDict

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
    adapters: Mapping[str, str]
    max_adapters: int
    max_adapter_rank: int
    merge_adapter: str | os.PathLike[str] | None
    draft_model: str | os.PathLike[str] | None
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
    max_loras: int
    max_lora_rank: int
