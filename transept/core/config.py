"""Frozen settings of the engine's parts, checked when they are made."""

from __future__ import annotations

import dataclasses
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from transept.core.parallel.launcher import Launcher
from transept.core.request.limits import DEFAULT_LIMITS, Limits
from transept.errors import ParameterError, suggest
from transept.option_names import made_of, refuses_unknown

DTYPES = ("float32", "bfloat16", "float16")
KV_CACHE_DTYPES = ("auto", "fp8")
QUANTIZATIONS = ("int8", "fp8")
CPU_CACHE_BYTES = 5 << 28  # 36 windows of Whisper base, 13,600 tokens of BART large
INTEGERS = {  # of EngineConfig: at least, at most
    "tensor_parallel_size": (1, 1 << 10),
    "pipeline_parallel_size": (1, 1 << 10),
    "num_threads": (1, 1 << 31),
    "block_size": (1, 1 << 16),
    "kv_cache_bytes": (1, 1 << 50),
    "swap_bytes": (0, 1 << 50),
    "max_num_seqs": (1, 1 << 20),
    "max_decoder_tokens": (1, 1 << 31),
    "max_encoder_tokens": (1, 1 << 31),
    "encoder_tokens_per_step": (1, 1 << 31),
}
MOST_SECONDS = 86_400
THREADS_A_PROCESSOR = 64  # at most; starting many thousands takes minutes
ENCODER_TOKENS_A_STEP = 16384  # default budget: ten Whisper windows, so that prefills delay running requests briefly

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SchedulerConfig:
    """What one step may hold at most.

    max_num_seqs: decoder sequences that run at a time, all samples of a request counted.
    max_decoder_tokens: decoder tokens computed in one step: all of a prefill's, one of each running sequence's.
    max_encoder_tokens: encoder tokens computed in one step, which are the prefills'.
    encoder_tokens_per_step: while others decode, a request with n times as many encoder tokens waits until n steps have
        passed since the last such encoder ran: each of theirs is held up less often. None: none waits so.

    Raises ParameterError for a budget under 1, or too few decoder tokens for every sequence to take one a step.
    """

    max_num_seqs: int
    max_decoder_tokens: int
    max_encoder_tokens: int
    encoder_tokens_per_step: int | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is None and field.default is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ParameterError(f"{field.name} must be an integer of at least 1, not {value!r}")
        if self.max_decoder_tokens < self.max_num_seqs:
            raise ParameterError(
                f"max_decoder_tokens={self.max_decoder_tokens} is under max_num_seqs={self.max_num_seqs}: "
                f"a step in which every sequence decodes needs one token each. Raise the first or lower the second."
            )


@refuses_unknown("Engine has no option")
@dataclass(frozen=True)
class EngineConfig:
    """All that may be set on an engine. Sizes left None follow from the model and the machine.

    model: a local directory, ``package:NAME/folder`` for weights inside an installed Python package, a hub name, or a
        short name such as ``"small"``, which `transept models` lists.
    model_dir: folder that models are looked up in and downloaded to; None: the hub's cache.
    offline: never ask the hub; a model that is not on this machine is an error.
    device: ``"cpu"``, ``"cuda"``, or ``"auto"``. dtype: one of DTYPES, or ``"auto"``: float32 on a CPU, else bfloat16.
        On a CPU bfloat16 is what weights and their factors are rounded to, see docs/models.md.
    attention_backend: ``"torch"``, ``"triton"`` or ``"xformers"``; ``"auto"``: torch on a CPU, on a GPU triton, or
        torch where that cannot serve.
    quantization: None, or what linear layers and the vocabulary matrix are rounded to once they are loaded:
        ``"int8"``, or on a GPU ``"fp8"``. A checkpoint in int8 stays so.
    tensor_parallel_size: processes that share the model's layers, each with its heads, its part of every feed-forward
        network and of the vocabulary; on GPUs each has one. It must divide the heads. See docs/parallel.md.
    pipeline_parallel_size: stages, each with some of the layers, that work on different requests at a time. Each has
        tensor_parallel_size processes.
    worker_timeout: seconds after which such a process is taken to hang that computes and does not get on: on a CPU, of
        processor time, so that waiting for a core does not count before a minute. None: 8 on CPUs, 60 on GPUs.
    launcher: what starts these processes, such as `transept.cluster.RankActors`; None: programs on this machine.
    num_threads: of a CPU's work, for all engines of this process, and divided among the processes that share the
        model; None leaves PyTorch's, which are one for each core.
    plugin: the plugin to take, where two run the same architecture.
    block_size: slots (tokens) of a cache block.
    kv_cache_dtype: what keys and values are rounded to in the cache: ``"auto"``, which is the dtype, but float16 beside
        int8 weights on a CPU, or ``"fp8"`` (e4m3), which halves what cross-attention reads on a GPU.
    kv_cache_bytes: cache memory on the device; on a CPU of all processes that share the model together. Default: on
        a CPU 1.25 GiB, and at most a quarter of the machine's memory, whose pages are used only when they are written;
        on a GPU what gpu_memory_utilization leaves.
    gpu_memory_utilization: the share of a GPU's memory, over 0 and up to 1, that may be used once the engine is built.
        Weights and the activations of the largest step, which is run to measure them, are part of it.
    swap_bytes: host memory for preempted requests; 0 recomputes them.
    enforce_eager: on a GPU, launch a decode step's kernels one by one instead of replaying a CUDA graph.
    max_num_seqs, max_decoder_tokens, max_encoder_tokens: budgets of one step, see SchedulerConfig.
    encoder_tokens_per_step: on a CPU, how much of encoders there is on average in steps that others take part in, see
        SchedulerConfig: the slowest of many requests are faster and throughput is a little lower. Servers set 375,
        which is an encoder of Whisper in every fifth step or so.
    limits: how much one request may hold, see Limits; or a dict of them.

    Raises ParameterError for an unknown option or a value out of range.
    """

    model: str
    device: str = "auto"
    dtype: str = "auto"
    attention_backend: str = "auto"
    quantization: str | None = None
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    worker_timeout: float | None = None
    launcher: Launcher | None = None
    num_threads: int | None = None
    plugin: str | None = None
    model_dir: str | None = None
    offline: bool = False
    block_size: int = 64
    kv_cache_dtype: str = "auto"
    kv_cache_bytes: int | None = None
    gpu_memory_utilization: float = 0.9
    swap_bytes: int = 0
    enforce_eager: bool = False
    max_num_seqs: int = 64
    max_decoder_tokens: int | None = None
    max_encoder_tokens: int | None = None
    encoder_tokens_per_step: int | None = None
    limits: Limits = DEFAULT_LIMITS

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", str(self.dtype).removeprefix("torch."))  # torch.float16 means "float16"
        if isinstance(self.limits, Mapping):
            object.__setattr__(self, "limits", made_of(Limits, "there is no limit", self.limits))
        self._check_types()
        if self.dtype not in ("auto", *DTYPES):
            raise ParameterError(f"no dtype {self.dtype!r}.{suggest(self.dtype, ('auto', *DTYPES))}")
        if self.kv_cache_dtype not in KV_CACHE_DTYPES:
            hint = suggest(str(self.kv_cache_dtype), KV_CACHE_DTYPES)
            raise ParameterError(f"no kv_cache_dtype {self.kv_cache_dtype!r}.{hint}")
        if self.quantization not in (None, *QUANTIZATIONS):
            hint = suggest(str(self.quantization), QUANTIZATIONS)
            raise ParameterError(f"no quantization {self.quantization!r}.{hint}")
        optional = {field.name for field in dataclasses.fields(self) if field.default is None}
        for name, (low, high) in INTEGERS.items():
            value = getattr(self, name)
            if value is None and name in optional:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < low:
                raise ParameterError(f"{name} must be an integer of at least {low}, not {value!r}")
            if value > high:
                raise ParameterError(f"{name} must be at most {high}, not {value:,}")
        self.scheduler_config(None, None)
        processors = os.cpu_count() or 1
        if self.num_threads is not None and self.num_threads > THREADS_A_PROCESSOR * processors:
            raise ParameterError(f"num_threads={self.num_threads} is far above this machine's {processors} processors")
        share = self.gpu_memory_utilization
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
            raise ParameterError(f"gpu_memory_utilization must be a number over 0 and up to 1, not {share!r}")

        seconds = 1 if self.worker_timeout is None else self.worker_timeout
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 1 <= seconds <= MOST_SECONDS:
            raise ParameterError(
                f"worker_timeout must be a number of seconds from 1 to {MOST_SECONDS}, not {seconds!r}"
            )

    @property
    def num_ranks(self) -> int:
        """Processes that share the model."""
        return self.tensor_parallel_size * self.pipeline_parallel_size

    def _check_types(self) -> None:
        kinds: dict[str, tuple[tuple[type, ...], str]] = {
            "model": ((str, os.PathLike), "a directory or a name"),
            "device": ((str,), 'a string, such as "cpu" or "cuda:0"'),
            "attention_backend": ((str,), 'a string, such as "auto"'),
            "plugin": ((str, type(None)), "a plugin's name or None"),
            "model_dir": ((str, os.PathLike, type(None)), "a folder or None"),
            "offline": ((bool,), "True or False"),
            "enforce_eager": ((bool,), "True or False"),
            "limits": ((Limits,), "Limits or a dict of them"),
            "launcher": ((Launcher, type(None)), "a Launcher, such as transept.cluster.RankActors(), or None"),
        }
        for name, (types, wanted) in kinds.items():
            if not isinstance(getattr(self, name), types):
                raise ParameterError(f"{name} must be {wanted}, not {getattr(self, name)!r}")

    def on_this_machine(self) -> EngineConfig:
        """The same with device and dtype decided, and on a CPU kv_cache_bytes.

        Raises ParameterError for a device that is absent, and for more host memory than there is.
        """
        import torch

        device = self.device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        if not re.fullmatch(r"(cpu|cuda)(:\d{1,3})?", device, re.ASCII):
            raise ParameterError(f"no device {device!r}; known: auto, cpu, cuda, cuda:0, ...")
        device = "cpu" if device.startswith("cpu:") else device  # PyTorch's only one
        on_gpu = device.startswith("cuda")
        sees_gpus = self.launcher is None or self.launcher.is_local  # else the ranks' own machines do
        if on_gpu and sees_gpus and not torch.cuda.is_available():
            raise ParameterError(f'device="{device}", but PyTorch {torch.__version__} sees no GPU; use device="cpu"')
        index = int(device.partition(":")[2] or 0)
        if on_gpu and sees_gpus and index >= torch.cuda.device_count():
            raise ParameterError(
                f'device="{device}", but PyTorch sees {torch.cuda.device_count()} GPUs, from cuda:0 on'
            )
        num_ranks = self.num_ranks
        if on_gpu and sees_gpus and num_ranks > 1 and (device != "cuda" or torch.cuda.device_count() < num_ranks):
            raise ParameterError(
                f"tensor_parallel_size={self.tensor_parallel_size} and pipeline_parallel_size="
                f'{self.pipeline_parallel_size} take the first {num_ranks} GPUs of device="cuda"; '
                f'device="{device}" was asked for, and PyTorch sees {torch.cuda.device_count()}'
            )
        dtype = ("bfloat16" if on_gpu else "float32") if self.dtype == "auto" else self.dtype
        if not on_gpu and self.quantization == "fp8":
            raise ParameterError('quantization="fp8" is for GPUs; on a CPU quantization="int8" is')
        if not on_gpu and self.quantization and dtype != "float32":
            raise ParameterError(f'quantization="{self.quantization}" on a CPU wants dtype="float32", not "{dtype}"')
        if not on_gpu and self.kv_cache_dtype == "fp8" and self.attention_backend in ("auto", "torch"):
            raise ParameterError(
                'kv_cache_dtype="fp8" is for GPUs; on a CPU keys and values are in float16 beside int8 and bfloat16'
            )
        if not on_gpu and dtype == "float16":
            logger.warning("float16 is slow on a CPU; float32, bfloat16 and, as quantization, int8 are faster there")
        kv_cache_bytes, memory = self.kv_cache_bytes, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if kv_cache_bytes is None and not on_gpu:
            kv_cache_bytes = min(CPU_CACHE_BYTES, memory // 4)
        in_host_memory = {"swap_bytes": self.swap_bytes, "kv_cache_bytes": 0 if on_gpu else kv_cache_bytes}
        for name, size in in_host_memory.items():
            if size is not None and size > memory:
                raise ParameterError(f"{name}={size} is more than this machine's memory of {memory} bytes")
        return dataclasses.replace(self, device=device, dtype=dtype, kv_cache_bytes=kv_cache_bytes)

    @property
    def activation_dtype(self) -> str:
        """Of what layers hand on. On a CPU it is float32 where dtype is bfloat16: kernels round what they multiply."""
        return "float32" if self._multiplies_bfloat16 else self.dtype

    @property
    def weight_rounding(self) -> str | None:
        """What weights are rounded to as kernels pack them: the quantization, or bfloat16 on a CPU."""
        return "bfloat16" if self._multiplies_bfloat16 else self.quantization

    @property
    def _multiplies_bfloat16(self) -> bool:
        return self.device == "cpu" and self.dtype == "bfloat16"

    def scheduler_config(self, max_source_positions: int | None, max_target_positions: int | None) -> SchedulerConfig:
        """Budgets of one step, those left None sized by the model's longest encoder and decoder sequence."""
        decoder_tokens = self.max_num_seqs * (max_target_positions or 1024)
        encoder_tokens = max(ENCODER_TOKENS_A_STEP, max_source_positions or 0)
        return SchedulerConfig(
            max_num_seqs=self.max_num_seqs,
            max_decoder_tokens=decoder_tokens if self.max_decoder_tokens is None else self.max_decoder_tokens,
            max_encoder_tokens=encoder_tokens if self.max_encoder_tokens is None else self.max_encoder_tokens,
            encoder_tokens_per_step=self.encoder_tokens_per_step if self.device == "cpu" else None,
        )
