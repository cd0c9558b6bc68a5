"""Worker: one device with its part of the model and its cache. Made by `in_process` and `worker_main`."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from transept.core.attention.attention import LayerContext
from transept.core.attention.backends.selector import select_backend
from transept.core.checkpoints.adapter_folder import read_adapter
from transept.core.checkpoints.draft_model import drop_encoder
from transept.core.checkpoints.load_weights import load_weights
from transept.core.checkpoints.model_description import ModelDescription, build_model, describe_model
from transept.core.config import EngineConfig
from transept.core.execution.device_errors import fatal_errors_end_the_engine
from transept.core.execution.draft_runner import DraftRunner
from transept.core.execution.executor import WorkerConfig
from transept.core.execution.heap_trim import trimmed_heap
from transept.core.execution.kv_cache import KVCache, block_bytes
from transept.core.execution.memory_profile import cache_bytes, largest_step
from transept.core.execution.model_adapters import ModelAdapters
from transept.core.execution.model_runner import IssuedStep, ModelRunner, on_device
from transept.core.execution.sampler import Sampler
from transept.core.execution.sliced_encodes import pause_before_layer
from transept.core.kernels.dispatch import multiplies_bfloat16, reads_float16, share_num_threads
from transept.core.layers.packing import WeightPacker
from transept.core.layers.pipeline_partition import keep_stage, layer_lists
from transept.core.layers.projected_attention import MakesKeysAndValues
from transept.core.model import ForConditionalGeneration
from transept.core.model_shape import ModelShape
from transept.core.parallel.group import ParallelGroup
from transept.core.parallel.pipeline_stage import PipelineStage
from transept.core.request.grammars import Grammars
from transept.core.request.text_features import map_text_features
from transept.core.scheduling.step import StepOutput
from transept.errors import CapacityError, PluginError, TranseptError
from transept.registry.plugin_calls import plugin_named, tokenizers_of
from transept.system import performance_cores

ALONE = ParallelGroup()

logger = logging.getLogger(__name__)


class Worker:
    """Loads the model onto its device, and owns the cache and the runner of steps.

    ranks: the workers that share the layers of a stage. Each has some of the heads, and the corresponding rows and
    columns of weights and cache; all receive the same steps. stage: the layers of these ranks. On a CPU, all processes
    together use kv_cache_bytes and swap_bytes; the caches of all stages have the same number of blocks.

    Raises CheckpointError, PluginError, ParameterError; CapacityError if there is too little memory.
    """

    def __init__(
        self,
        worker_config: WorkerConfig,
        described: ModelDescription,
        ranks: ParallelGroup = ALONE,
        stage: PipelineStage | None = None,
    ) -> None:
        stage = stage or PipelineStage()
        config = worker_config.config
        slow_too = torch.get_num_threads() == os.cpu_count()  # PyTorch's default
        threads = config.threads or (performance_cores() if slow_too else None)
        if threads is not None:
            torch.set_num_threads(threads)
        self.device = device = torch.device(config.device)
        if device.type == "cpu":
            share_num_threads()
        all_layers = _own_heads(described.shape, ranks)
        layers = stage.decoder_layers(described.shape)
        shape, cache_dtype = replace(all_layers, num_decoder_layers=len(layers)), _cache_dtype(config)
        with trimmed_heap(), plugin_named(described.spec), _memory_for("the weights"):
            model, attentions = _load(described, config, cache_dtype, ranks, stage)
        records = (
            device.type == "cuda"
            and ranks.size == 1
            and stage.count == 1
            and not config.enforce_eager
            and model.context.attention_backend.replayable
        )
        # On a GPU, whole passes are replayed; stages wait for each other's layers.
        pauses = device.type == "cpu" and stage.count == 1
        self.num_encoder_layers = _pause_between_encoder_layers(model, described.shape) if pauses else 1
        spec, view = described.spec, described.view  # the grammars must not keep the checkpoint open
        grammars = Grammars(lambda: tokenizers_of(spec, view)[1], described.shape.vocab_size)
        sampler = Sampler(device, grammars)
        adapters = ModelAdapters(model, config.max_adapters)
        draft_path, has_encoder = worker_config.draft_path, not worker_config.shares_encoder
        size_of_draft = size_of_own_draft = 0
        if draft_path is not None:
            drafting = describe_model(draft_path, str(config.draft_model), config.plugin)
            draft_shape = _own_heads(drafting.shape, ranks)
            size_of_draft = block_bytes(drafting.shape, config.block_size, cache_dtype)
            size_of_own_draft = block_bytes(draft_shape, config.block_size, cache_dtype)
            with trimmed_heap(), plugin_named(drafting.spec), _memory_for("the weights"):
                options = replace(config, merge_adapter=None)
                draft_model, draft_attentions = _load(drafting, options, cache_dtype, ranks, stage, has_encoder)

        def draft_runner(num_blocks: int, num_host_blocks: int) -> DraftRunner | None:
            if draft_path is None:
                return None
            cache = KVCache(draft_shape, config.block_size, num_blocks, num_host_blocks, cache_dtype, device)
            return DraftRunner(
                drafting.spec,
                draft_model,
                cache,
                config.block_size,
                Sampler(device, grammars),
                draft_attentions,
                encodes=has_encoder,
            )

        def runner(num_blocks: int, num_host_blocks: int) -> ModelRunner:
            cache = KVCache(shape, config.block_size, num_blocks, num_host_blocks, cache_dtype, device)
            drafts = draft_runner(num_blocks, num_host_blocks)
            made = ModelRunner(described.spec, model, cache, config.block_size, sampler, attentions, adapters, drafts)
            if records:
                made.record_steps()
            return made

        kv_cache_bytes = config.kv_cache_bytes
        if kv_cache_bytes is None:
            features = described.model_class.longest_features(described.config)
            beside_text = partial(map_text_features, described.spec, described.view, {})
            step = largest_step(shape, worker_config.limits, config.block_size, features, beside_text)
            with on_device(device):
                kv_cache_bytes = cache_bytes(runner(1, 0), step, config.gpu_memory_utilization)
        bytes_of_all = ranks.size * block_bytes(all_layers, config.block_size, cache_dtype) + size_of_draft
        own_bytes = block_bytes(shape, config.block_size, cache_dtype) + size_of_own_draft
        size = bytes_of_all if device.type == "cpu" else own_bytes
        self.num_device_blocks = min(ranks.all_gather_int(kv_cache_bytes // size))
        self.num_host_blocks = config.swap_bytes // bytes_of_all
        with _memory_for("the cache"):
            self.runner = runner(self.num_device_blocks, self.num_host_blocks)
        self.cache = self.runner.cache

    def collect(self, step: IssuedStep) -> StepOutput:
        """Wait for a step's output. Raises EngineDeadError once the device has failed."""
        with fatal_errors_end_the_engine(self.device):
            return step.collect()


@contextmanager
def _memory_for(what: str) -> Iterator[None]:
    """Raise CapacityError if PyTorch or the system refuses memory."""
    try:
        yield
    except Exception as error:
        refusal = error.__cause__ if isinstance(error, TranseptError) else error
        if not _is_of_memory(refusal):
            raise
        remedy = "lower {kv_cache_bytes} or {swap_bytes}" if what == "the cache" else "try {quantization='int8'}"
        reason = str(refusal).partition("\n")[0].rpartition("] ")[2] or type(refusal).__name__
        raise CapacityError(
            f"there is too little memory for {what}: give the process more, or {remedy} ({reason})",
            others=("kv_cache_bytes", "swap_bytes", "quantization"),
        ) from error


def _is_of_memory(error: BaseException | None) -> bool:
    refused = isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)
    return refused or getattr(error, "errno", None) == errno.ENOMEM


def _pause_between_encoder_layers(model: ForConditionalGeneration, shape: ModelShape) -> int:
    """Let encodes pause between the encoder's layers. Returns the number of layers; 1 if they cannot be found."""
    try:
        layers, _ = layer_lists(model, shape.num_decoder_layers)
    except PluginError:
        return 1
    for layer in layers:
        layer.register_forward_pre_hook(pause_before_layer)
    return len(layers)


def _own_heads(shape: ModelShape, ranks: ParallelGroup) -> ModelShape:
    """Return the shape of a rank's part of all layers. Raises ParameterError if the ranks cannot divide the heads."""
    num_heads = None if shape.num_heads is None else ranks.share(shape.num_heads, "heads")
    return replace(shape, num_heads=num_heads, num_kv_heads=ranks.share(shape.num_kv_heads, "heads of keys and values"))


def _cache_dtype(config: EngineConfig) -> torch.dtype:
    """Return the cache's dtype. A CPU with rounded weights rounds keys and values, since decoding is memory-bound."""
    if config.kv_cache_dtype == "fp8":
        return torch.float8_e4m3fn
    narrow = config.device == "cpu" and config.weight_rounding and reads_float16()
    return torch.float16 if narrow else getattr(torch, config.activation_dtype)


def _load(
    described: ModelDescription,
    config: EngineConfig,
    cache_dtype: torch.dtype,
    ranks: ParallelGroup,
    stage: PipelineStage,
    has_encoder: bool = True,
) -> tuple[ForConditionalGeneration, Sequence[MakesKeysAndValues | None]]:
    """Load the model onto its device. Packs the weights of linear layers for the kernels while it reads them.

    has_encoder: False for a draft model that shares the target's encoder.
    Returns the model and the cross-attentions of the stage's decoder layers.
    """
    device, default_dtype = torch.device(config.device), torch.get_default_dtype()
    dtype: torch.dtype = getattr(torch, config.activation_dtype)
    long_inputs = not described.shape.encoder_takes_text
    backend = select_backend(
        config.attention_backend,
        device,
        dtype,
        described.shape.head_dim,
        config.block_size,
        cache_dtype,
        config.weight_rounding,
        long_inputs=long_inputs,
    )
    if device.type == "cpu" and config.weight_rounding == "bfloat16" and not multiplies_bfloat16():
        logger.warning("bfloat16 is slower than float32 on this processor, which has no instructions for it")
    chosen = (backend.name, device, config.dtype, config.quantization or "none")
    logger.info("attention backend %s on %s, dtype %s, quantization %s", *chosen)
    context = LayerContext(attention_backend=backend, group=ranks, stage=stage)
    # A stage builds all layers, whose empty parameters take no physical memory, then drops other stages' layers.
    torch.set_default_dtype(dtype)
    try:
        with device if stage.count == 1 else torch.device("cpu"):
            model = build_model(described, context).eval().requires_grad_(False)
    finally:
        torch.set_default_dtype(default_dtype)
    layers = stage.decoder_layers(described.shape)
    attentions = model.cross_attentions()[layers.start : layers.stop]
    elsewhere = keep_stage(model, described.shape, stage)
    if not has_encoder:
        elsewhere |= drop_encoder(model)
    if stage.count > 1:
        model.to(device)
    packer = WeightPacker(model, device.type, config.weight_rounding, long_inputs=long_inputs)
    merges = config.merge_adapter
    updates = () if merges is None else read_adapter(Path(merges), described.names_of_adapters)
    checkpoint, weight_map = described.checkpoint, described.weight_map
    load_weights(model, checkpoint, weight_map, packer, elsewhere, described.spec.known_as, updates)
    return model, attentions
