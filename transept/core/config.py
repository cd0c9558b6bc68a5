"""EngineConfig and SchedulerConfig: frozen settings, checked when they are made."""

from __future__ import annotations

import dataclasses
import logging
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

from transept.core.parallel.devices import check_eager, check_gpus, other_accelerator
from transept.core.parallel.launcher import Launcher
from transept.core.request.adapter_options import MAX_ADAPTER_RANK, MAX_ADAPTERS, MERGE_ADAPTER, NAMED_ADAPTERS
from transept.core.request.draft_options import DRAFT_MODEL
from transept.core.request.limits import DEFAULT_LIMITS, Limits
from transept.errors import ParameterError
from transept.option_names import Alias
from transept.options import Option, declares_options, made_of, refusal, take_options
from transept.system import memory_bytes

CPU_CACHE_BYTES = 5 << 28  # 36 windows of Whisper base, 13,600 tokens of BART large
MOST_SECONDS = 86_400
ONE_PROCESS = "on Windows one process runs a model: leave out {tensor_parallel_size=} and {pipeline_parallel_size=}"
THREADS_A_PROCESSOR = 64  # at most; starting many thousands takes minutes
FLOAT_TYPES = {"default": None, "auto": None, "float32": "float32", "float16": "half", "bfloat16": "bfloat16"}
# CTranslate2's names -> dtype of everything that is not int8; on a CPU it is float32 for all of them
INT8_TYPES = {"int8": None, "int8_float32": "float32", "int8_float16": "half", "int8_bfloat16": "auto"}
ENCODER_TOKENS_A_STEP = 16384  # default budget: ten Whisper windows, for short delays of running requests

logger = logging.getLogger(__name__)

_count = partial(Option, ge=1, le=1 << 31)
_num_ranks = partial(Option, metavar="N", default="", ge=1, le=1 << 10)


@dataclass(frozen=True)
class SchedulerConfig:
    """Budgets of one step.

    max_num_seqs: decoder sequences that run at a time, including all samples of a request.
    max_decoder_tokens: decoder tokens computed in one step: all of a prefill, and one of each running sequence.
    max_encoder_tokens: encoder tokens computed in one step.

    Raises ParameterError for a budget under 1, or if there are fewer decoder tokens than sequences.
    """

    max_num_seqs: int
    max_decoder_tokens: int
    max_encoder_tokens: int

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise refusal(self, f"{{{field.name}}} must be an integer of at least 1, not {{{field.name}!}}")
        if self.max_decoder_tokens < self.max_num_seqs:
            raise refusal(
                self,
                "{max_decoder_tokens=} is under {max_num_seqs=}, but each decoding sequence needs one token in a step. "
                "Raise the first or lower the second.",
            )


def _path(_: str, given: Any) -> Any:
    """Return a path as text, and any other value unchanged."""
    return os.fspath(given) if isinstance(given, os.PathLike) else given


def _dtype(_: str, given: Any) -> str:
    """Return the name of a dtype, which may be PyTorch's."""
    return str(given).removeprefix("torch.")


@declares_options("Engine has no option")
@dataclass(frozen=True)
class EngineConfig:
    """All options of an engine. Sizes default to values that suit the model and the machine.

    Raises ParameterError for an unknown option or a value out of range.
    """

    model: Annotated[
        str,
        Option(
            "name (`transept models` lists them), checkpoint directory, package:NAME/folder, or hub name",
            wanted="a directory or a name",
            aliases=("model_size_or_path",),
            parse=_path,
        ),
    ]
    device: Annotated[
        str,
        Option(
            "cpu, cuda, cuda:1 or mps",
            metavar="NAME",
            default="a GPU if any",
            wanted='a string, such as "cpu" or "cuda:0"',
        ),
    ] = "auto"
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16", "half"],
        Option(
            "bfloat16, float16 or float32 (default on a CPU)",
            "auto: float32 on a CPU, else bfloat16. half: float32 on a CPU, else float16. On a CPU, bfloat16 "
            "weights and their factors are rounded to bfloat16; see docs/models.md.",
            metavar="NAME",
            default="",
            aliases=(
                "torch_dtype",
                Alias("fp16", {True: "half", False: "float32"}),
                Alias("compute_type", {**FLOAT_TYPES, **INT8_TYPES}),
            ),
            parse=_dtype,
            also="torch.dtype",
        ),
    ] = "auto"
    attention_backend: Annotated[
        str,
        Option("torch, triton or xformers", "auto: torch on a CPU; on a GPU triton, or torch if triton cannot run."),
    ] = "auto"
    quantization: Annotated[
        Literal["int8", "fp8"] | None,
        Option(
            "round weights: int8 is faster, fp8 for GPUs",
            "Linear layers and the vocabulary matrix are rounded once they are loaded. A checkpoint in int8 stays so.",
            metavar="NAME",
            aliases=(Alias("compute_type", {**dict.fromkeys(FLOAT_TYPES), **dict.fromkeys(INT8_TYPES, "int8")}),),
        ),
    ] = None
    tensor_parallel_size: Annotated[
        int,
        _num_ranks(
            "processes or GPUs that share each layer",
            "Each has a part of the heads, of every feed-forward network and of the vocabulary. It must divide the "
            "number of heads. See docs/parallel.md.",
        ),
    ] = 1
    pipeline_parallel_size: Annotated[
        int,
        _num_ranks(
            "processes or GPUs among which layers are divided",
            "Stages work on different requests at a time. Each has tensor_parallel_size processes.",
        ),
    ] = 1
    worker_timeout: Annotated[
        float | None,
        Option(
            "seconds without progress after which a computing process counts as hung",
            "On a CPU, seconds of processor time, so that waiting for a core does not count before a minute. None: 8 "
            "on CPUs, 60 on GPUs.",
            ge=1,
            le=MOST_SECONDS,
        ),
    ] = None
    launcher: Annotated[
        Launcher | None,
        Option(
            "launcher of the processes, such as transept.cluster.RankActors()",
            "None: processes on this machine.",
            wanted="a Launcher, such as transept.cluster.RankActors(), or None",
        ),
    ] = None
    threads: Annotated[
        int | None,
        Option(
            "CPU threads",
            "For all engines of this process, and divided among the processes that share the model. None or 0: one for "
            "each core; on a Mac, for each fast core.",
            aliases=("num_threads", "cpu_threads"),
            metavar="N",
            default="one for each core",
            ge=0,
            le=1 << 31,
        ),
    ] = None
    plugin: Annotated[
        str | None,
        Option("plugin to run the model with, if several could", metavar="NAME", wanted="a plugin's name or None"),
    ] = None
    model_dir: Annotated[
        str | None,
        Option(
            "folder of models",
            "Models are looked up in it and downloaded to it.",
            metavar="DIR",
            default="the hub's cache",
            wanted="a folder or None",
            aliases=("download_root", "download_dir", "cache_dir"),
            parse=_path,
            also="os.PathLike[str]",
        ),
    ] = None
    offline: Annotated[
        bool, Option("download nothing: take models that are on this machine", aliases=("local_files_only",))
    ] = False
    adapters: Annotated[Mapping[str, str], NAMED_ADAPTERS] = dataclasses.field(default_factory=dict)
    max_adapters: Annotated[int, MAX_ADAPTERS] = 8
    max_adapter_rank: Annotated[int, MAX_ADAPTER_RANK] = 64
    merge_adapter: Annotated[str | None, MERGE_ADAPTER] = None
    draft_model: Annotated[str | None, DRAFT_MODEL] = None
    block_size: Annotated[int, Option("slots (tokens) of a cache block", ge=1, le=1 << 16)] = 64
    kv_cache_dtype: Annotated[
        Literal["auto", "fp8"],
        Option(
            "type that keys and values are rounded to in the cache",
            "auto: the dtype, but float16 on a CPU with int8 or bfloat16 weights. fp8 (e4m3) halves what "
            "cross-attention reads on a GPU.",
        ),
    ] = "auto"
    kv_cache_bytes: Annotated[
        int | None,
        Option(
            "cache memory on the device",
            "On a CPU, the total of all processes that share the model. Default: on a CPU 1.25 GiB, but at most a "
            "quarter of the machine's memory, of which pages are used only once they are written; on a GPU the memory "
            "that gpu_memory_utilization leaves.",
            ge=1,
            le=1 << 50,
        ),
    ] = None
    gpu_memory_utilization: Annotated[
        float,
        Option(
            "share of a GPU's memory that may be used once the engine is built",
            "Weights and the activations of the largest step, which is run to measure them, are part of it.",
            gt=0,
            le=1,
        ),
    ] = 0.9
    swap_bytes: Annotated[int, Option("host memory for preempted requests; 0 recomputes them", ge=0, le=1 << 50)] = 0
    enforce_eager: Annotated[bool, Option("on a GPU, launch kernels one by one instead of replaying CUDA graphs")] = (
        False
    )
    max_num_seqs: Annotated[
        int,
        Option(
            "decoder sequences that run at a time",
            "All samples and beams of a request count. See SchedulerConfig.",
            ge=1,
            le=1 << 20,
        ),
    ] = 64
    max_decoder_tokens: Annotated[int | None, _count("decoder tokens computed in one step", "See SchedulerConfig.")] = (
        None
    )
    max_encoder_tokens: Annotated[int | None, _count("encoder tokens computed in one step", "See SchedulerConfig.")] = (
        None
    )
    encoder_layers_per_step: Annotated[
        int | None,
        _count(
            "on a CPU, encoder layers that a step computes beside requests that decode",
            "Those requests wait for them; the encoder continues in the next step. It applies to servers, AsyncEngine "
            "and callers of Engine.step. In `generate` and other calls that return results, an encoder takes one "
            "step.",
            metavar="N",
            default="as many as take about as long as the rest of the step",
        ),
    ] = None
    limits: Annotated[
        Limits, Option("how much one request may hold", "Limits, or a dict of them.", parse=partial(made_of, Limits))
    ] = DEFAULT_LIMITS

    def __post_init__(self) -> None:
        take_options(self)
        self.scheduler_config(None, None)
        processors = os.cpu_count() or 1
        object.__setattr__(self, "threads", self.threads or None)
        if self.threads is not None and self.threads > THREADS_A_PROCESSOR * processors:
            raise refusal(self, f"{{threads=}} is far above this machine's {processors} processors")

    @property
    def num_ranks(self) -> int:
        """Processes that share the model."""
        return self.tensor_parallel_size * self.pipeline_parallel_size

    def on_this_machine(self) -> EngineConfig:
        """Return a copy with device and dtype resolved, and on a CPU kv_cache_bytes.

        Raises ParameterError for an absent device, and for more host memory than the machine has.
        """
        import torch

        device = self.device
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        is_eager = device in ("mps", other_accelerator())  # PyTorch's own operators compute there
        if not (is_eager or re.fullmatch(r"(cpu|cuda)(:\d{1,3})?", device, re.ASCII)):
            raise refusal(self, f"there is no {{device}} {device!r}; known: auto, cpu, cuda, cuda:0, ..., mps")
        device = "cpu" if device.startswith("cpu:") else device  # PyTorch has only one CPU device
        on_gpu = device.startswith("cuda")
        if is_eager:
            check_eager(self, device)
        if self.num_ranks > 1 and sys.platform == "win32":
            raise refusal(self, ONE_PROCESS)
        if on_gpu and (self.launcher is None or self.launcher.is_local):  # else the GPUs are on other machines
            check_gpus(self, device)
        shorthands = {"auto": "bfloat16", "half": "float16"}  # of a GPU's dtype; a CPU's is float32
        dtype: Any = self.dtype
        if dtype in shorthands:
            eager = {"half": "float16"} if is_eager else {}
            dtype = (shorthands if on_gpu else eager).get(dtype, "float32")
        if device == "cpu":
            if self.quantization == "fp8":
                raise refusal(self, "{quantization=} is for GPUs; on a CPU {quantization='int8'} is")
            if self.quantization and dtype != "float32":
                raise refusal(self, f"{{quantization=}} on a CPU needs {{dtype='float32'}}, not {dtype!r}")
            if self.kv_cache_dtype == "fp8" and self.attention_backend in ("auto", "torch"):
                advice = "on a CPU the cache is in float16 with int8 and bfloat16 weights"
                raise refusal(self, "{kv_cache_dtype=} is for GPUs; " + advice)
            if dtype == "float16":
                logger.warning("float16 is slow on a CPU; float32, bfloat16 and int8 quantization are faster there")
        kv_cache_bytes, memory = self.kv_cache_bytes, memory_bytes()
        if kv_cache_bytes is None and not on_gpu:
            kv_cache_bytes = min(CPU_CACHE_BYTES, memory // 4)
        in_host_memory = {"swap_bytes": self.swap_bytes, "kv_cache_bytes": 0 if on_gpu else kv_cache_bytes}
        for name, size in in_host_memory.items():
            if size is not None and size > memory:
                message = f"{{{name}=}} is more than this machine's memory of {memory} bytes"
                raise ParameterError(message, param=name, value=size)
        return dataclasses.replace(self, device=device, dtype=dtype, kv_cache_bytes=kv_cache_bytes)

    @property
    def activation_dtype(self) -> str:
        """The dtype of activations. With bfloat16 on a CPU it is float32, and the kernels round their inputs."""
        return "float32" if self._multiplies_bfloat16 else self.dtype

    @property
    def weight_rounding(self) -> str | None:
        """The type to which weights are rounded when they are packed: the quantization, or bfloat16 on a CPU."""
        return "bfloat16" if self._multiplies_bfloat16 else self.quantization

    @property
    def _multiplies_bfloat16(self) -> bool:
        return self.device == "cpu" and self.dtype == "bfloat16"

    def scheduler_config(self, max_source_positions: int | None, max_target_positions: int | None) -> SchedulerConfig:
        """Return the budgets of a step. By default, the model's longest sequences determine them."""
        decoder_tokens = self.max_decoder_tokens or self.max_num_seqs * (max_target_positions or 1024)
        encoder_tokens = self.max_encoder_tokens or max(ENCODER_TOKENS_A_STEP, max_source_positions or 0)
        return SchedulerConfig(self.max_num_seqs, decoder_tokens, encoder_tokens)
