"""The worker: one device with its model, its cache and the moves between cache blocks."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from transept.core.attention.backends.selector import select_backend
from transept.core.attention.layer import LayerContext
from transept.core.checkpoints.checkpoint import Checkpoint
from transept.core.checkpoints.described_model import build_model
from transept.core.checkpoints.load_weights import load_weights
from transept.core.checkpoints.weight_map import WeightMap
from transept.core.config import EngineConfig, SchedulerConfig
from transept.core.execution.decode_graphs import DecodeGraphs
from transept.core.execution.kv_cache import KVCache, block_bytes
from transept.core.execution.memory_profile import cache_bytes, largest_step
from transept.core.execution.model_runner import IssuedStep, ModelRunner
from transept.core.execution.sampler import Sampler
from transept.core.kernels.processor import widens_float16
from transept.core.layers.linear import ParallelGroup
from transept.core.layers.storing import store_weights, weight_class
from transept.core.model import ForConditionalGeneration
from transept.core.scheduler import SchedulerOutputs


class Worker:
    """Loads the model onto its device, owns the cache, runs steps."""

    def __init__(
        self,
        model_class: type[ForConditionalGeneration],
        model_config: Any,
        checkpoint: Checkpoint,
        weight_map: WeightMap,
        config: EngineConfig,  # as it is on this machine
        limits: SchedulerConfig,
        eos_token_ids: tuple[int, ...],
    ) -> None:
        if config.num_threads is not None:
            torch.set_num_threads(config.num_threads)
        self.device = device = torch.device(config.device)
        self.computes_alone = device.type != "cpu"  # beside the host, which may go on
        dtype = getattr(torch, config.dtype)
        shape = model_class.shape(model_config)
        cache_dtype = _cache_dtype(config, dtype)
        backend = select_backend(
            config.attention_backend,
            device,
            dtype,
            shape.head_dim,
            config.block_size,
            cache_dtype,
            config.quantization,
        )
        context = LayerContext(attention_backend=backend, group=ParallelGroup())
        model = _build(model_class, model_config, context, checkpoint, device, dtype)
        stored_as = weight_class(device, dtype, config.quantization)
        long_inputs = not shape.encoder_takes_text
        loaded = () if stored_as is None else (store_weights(model, stored_as, long_inputs=long_inputs),)
        load_weights(model, checkpoint, weight_map, *loaded)
        sampler = Sampler(eos_token_ids, device)

        def cache_of(num_blocks: int, num_host_blocks: int) -> KVCache:
            return KVCache(shape, config.block_size, num_blocks, num_host_blocks, cache_dtype, device)

        kv_cache_bytes = config.kv_cache_bytes
        if kv_cache_bytes is None:
            step = largest_step(shape, limits, config.block_size, model_class.longest_features(model_config))
            runner = ModelRunner(model, cache_of(1, 0), config.block_size, sampler)
            with _current(device):
                kv_cache_bytes = cache_bytes(runner, step, config.gpu_memory_utilization)
            del runner
        size = block_bytes(shape, config.block_size, cache_dtype)
        self.num_device_blocks, self.num_host_blocks = kv_cache_bytes // size, config.swap_bytes // size
        self.cache = cache_of(self.num_device_blocks, self.num_host_blocks)
        graphs = None
        if device.type == "cuda" and not config.enforce_eager and backend.replayable:
            graphs = DecodeGraphs(model, self.cache, config.block_size)
        self.runner = ModelRunner(model, self.cache, config.block_size, sampler, graphs)

    def issue(self, step: SchedulerOutputs, last: IssuedStep | None = None) -> IssuedStep:
        """Move the step's blocks, then give it to the device. last: see ModelRunner.issue."""
        with _current(self.device):
            self.cache.swap_out(step.blocks_to_swap_out)
            self.cache.swap_in(step.blocks_to_swap_in)
            self.cache.copy(step.blocks_to_copy)
            return self.runner.issue(step.metadata, last)


def _current(device: torch.device) -> AbstractContextManager[Any]:
    """Make it the GPU on which Triton launches kernels and PyTorch records graphs: the current one."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _cache_dtype(config: EngineConfig, dtype: torch.dtype) -> torch.dtype:
    """Of keys and values in the cache. Beside int8 weights a CPU rounds them, too: reading them is most of a step."""
    if config.kv_cache_dtype == "fp8":
        return torch.float8_e4m3fn
    return torch.float16 if config.device == "cpu" and config.quantization and widens_float16() else dtype


def _build(
    model_class: type[ForConditionalGeneration],
    model_config: Any,
    context: LayerContext,
    checkpoint: Checkpoint,
    device: torch.device,
    dtype: torch.dtype,
) -> ForConditionalGeneration:
    default = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            return build_model(model_class, model_config, context, checkpoint).eval().requires_grad_(False)
    finally:
        torch.set_default_dtype(default)
