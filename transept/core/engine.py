"""Engine: runs one model for many requests at once, step by step (`step`) or until all finish (`generate`)."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Seq
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

from tqdm import tqdm

from transept.core.checkpoints.adapters import Adapters
from transept.core.checkpoints.draft_model import find_draft_model
from transept.core.checkpoints.model_description import ModelDescription, check_default_prompt, describe_model
from transept.core.checkpoints.parallel_sizes import check_parallel_sizes
from transept.core.checkpoints.source import locate
from transept.core.config import EngineConfig
from transept.core.engine_core import EngineCore
from transept.core.execution.executor import Executor, WorkerConfig
from transept.core.execution.in_process import InProcessExecutor
from transept.core.jobs.job import Job, Submit
from transept.core.jobs.runner import JobRunner
from transept.core.model_shape import ModelShape
from transept.core.outputs import RequestOutput
from transept.core.request.ignored_settings import IgnoredSettings
from transept.core.request.input_processor import InputProcessor, not_params
from transept.core.request.inputs import PreparedRequest
from transept.core.request.pooling import Pooling
from transept.core.request.preprocess import InputPreprocessor
from transept.core.request.prompts import Prompt, Request
from transept.core.request.sampling_params import SamplingParams
from transept.core.scheduling.adapter_slots import AdapterSlots
from transept.core.scheduling.block_manager import BlockSpaceManager
from transept.core.scheduling.encoder_slices import EncoderSlices
from transept.core.scheduling.scheduler import Scheduler
from transept.core.scheduling.stopping import StopChecker
from transept.errors import ParameterError, PromptError, RequestFailedError, TranseptError
from transept.lifetime import Closable
from transept.option_names import shows_options
from transept.registry.plugin_calls import tokenizers_of
from transept.registry.plugins import discover

if TYPE_CHECKING:
    from transept.core.option_types import EngineKeywords

logger = logging.getLogger(__name__)

_IMPORTING = threading.Lock()  # of two threads that import transformers at once, one may see a partial module


class Engine(Closable):
    """Runs one encoder/decoder model for many requests at once.

    model and options: see EngineConfig, which documents and checks them.
    Raises CheckpointError, UnsupportedModelError, ParameterError; CapacityError if there is too little memory.

    An engine belongs to the thread that calls it first. Any other thread gets a ParameterError while a call runs or a
    request of `add_request` is unfinished. Several threads may call Transcriber, TextGenerator and `runner`, which runs
    jobs (`transept.core.jobs`); all of them share the engine's batch.

    spec, model_config, generation_config, source_tokenizer (for the encoder's text), tokenizer (for the decoder's,
        usually the same): declared by the checkpoint and its plugin. They are transformers' classes, or PlainConfig and
        PlainTokenizer for CTranslate2 checkpoints and for those that load without transformers, as most of Whisper,
        BART and T5 do. The latter have only those attributes and methods of transformers' classes that Transept uses.
    view: the checkpoint's folder and all of its settings, as the plugin's functions receive them.
    runner: runs jobs; see docs/jobs.md.
    """

    @shows_options(EngineConfig)
    def __init__(self, model: str | Path, **options: Unpack[EngineKeywords]) -> None:
        config = EngineConfig(model=cast(str, model), **cast("dict[str, Any]", options))
        described = describe(config)
        with _IMPORTING:
            drafting = find_draft_model(config, described)
        with _IMPORTING:
            self.view = described.view
            self.source_tokenizer, self.tokenizer = tokenizers_of(described.spec, self.view)
            self.generation_config = self.view.generation_config
        checkpoint, shape = described.checkpoint, described.shape
        config = dataclasses.replace(config, quantization=config.quantization or checkpoint.quantization)
        self.config = config = config.on_this_machine()
        self.spec, self.model_config, self.shape = described.spec, described.config, shape
        plain = described.weight_map.plain
        ignored_settings = IgnoredSettings(config.model, plain.generation_extras if plain else (), shape.vocab_size)
        ignored_settings.warn(self.generation_config)
        self.adapters = Adapters(
            partial(describe_model, checkpoint.path, config.model, config.plugin), config.max_adapter_rank
        )
        self.adapters.load_all(config.adapters)
        limits = config.scheduler_config(shape.max_source_positions, shape.max_target_positions)
        worker_config = WorkerConfig(checkpoint.path, config, limits, drafting.path, drafting.shares_encoder)
        if config.num_ranks == 1:
            self.executor: Executor = InProcessExecutor(worker_config, described)
        else:
            from transept.core.execution.multi_process import MultiProcessExecutor

            self.executor = MultiProcessExecutor(worker_config)
        capacity = self.executor.capacity
        self.block_manager = BlockSpaceManager(
            config.block_size,
            capacity.num_device_blocks,
            capacity.num_host_blocks,
            self.shape.window,
            in_host_memory=config.device == "cpu",
        )
        _warn_of_small_cache(self.block_manager, shape)
        slices = EncoderSlices(capacity.num_encoder_layers, config.encoder_layers_per_step)
        self.scheduler = Scheduler(limits, self.block_manager, slices)
        self.scheduler.adapters = AdapterSlots(config.max_adapters)
        self.scheduler.drafting.vocab_size = shape.vocab_size
        self.scheduler.drafting.model_shape = drafting.shape
        self.preprocess = InputPreprocessor(
            self.spec, self.view, shape, (self.source_tokenizer, self.tokenizer), config.limits
        )
        num_seqs, has_draft_model = config.max_num_seqs, drafting.path is not None
        self.inputs = InputProcessor(self.preprocess, ignored_settings, num_seqs, self.adapters.find, has_draft_model)
        self.core = EngineCore(self.executor, self.scheduler, StopChecker(self.tokenizer))
        self.runner = JobRunner(self.core, self.inputs, config.max_num_seqs, config.limits.max_queue_length)
        self._owner: threading.Thread | None = None  # the thread that uses the engine
        self._owner_lock = threading.Lock()
        self._num_calls = 0  # nested calls of the owner

    def generate(
        self,
        prompts: Prompt | Seq[Prompt],
        sampling_params: SamplingParams | Seq[SamplingParams] | None = None,
        *,
        generation_config: Any | None = None,
        lora: str | Seq[str | None] | None = None,
        progress: bool | None = None,
    ) -> list[RequestOutput]:
        """Run prompts until all finish. Returns their outputs in the order of the prompts.

        sampling_params: one for all prompts, or one for each. generation_config: see `add_request`. lora: name of the
        adapter of all prompts, or one name or None for each. progress: True to show a progress bar on stderr; default:
        if there are several prompts and stderr is a terminal.
        Raises PromptError, MediaError, ParameterError, CapacityError or RequestFailedError, naming the prompt. After an
        error, no prompt stays queued.
        """
        if not isinstance(prompts, Iterable):
            raise PromptError(f"prompts are strings or dicts, one or a list, not {type(prompts).__name__}")
        prompt_list = cast("list[Prompt]", [prompts] if isinstance(prompts, (str, Mapping)) else list(prompts))
        params_list = _one_each(sampling_params, len(prompt_list))
        adapters = [lora] * len(prompt_list) if lora is None or isinstance(lora, str) else [*lora]
        if len(adapters) != len(prompt_list):
            message = f"{len(adapters)} names in {{lora}} for {len(prompt_list)} prompts; give one for all, or one each"
            raise ParameterError(message, param="lora", value=lora)
        if not prompt_list:
            return []
        show = len(prompt_list) > 1 if progress is None else progress
        disable = None if show and progress is None else not show  # None: tqdm looks whether stderr is a terminal
        outputs: dict[int, RequestOutput] = {}
        with self._owned():
            requests = []
            for index, each in enumerate(zip(prompt_list, params_list, adapters, strict=True)):
                prompt, params, adapter = each
                with _naming(index, len(prompt_list)):
                    requests.append(self.inputs(Request(prompt, params, generation_config, lora=adapter)))
            jobs = (_output_of(request) for request in requests)
            with (
                tqdm(total=len(requests), desc="generate", unit="prompt", disable=disable) as bar,
                closing(self.runner.run(jobs, max_jobs=len(requests))) as events,
            ):
                for index, output in events:
                    with _naming(index, len(prompt_list)):
                        if isinstance(output, TranseptError):
                            raise output
                    outputs[index] = output
                    bar.update()
        return [outputs[index] for index in range(len(prompt_list))]

    def add_request(
        self,
        request_id: str,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        *,
        generation_config: Any | None = None,
        pooling: Pooling | None = None,
        lora: str | None = None,
    ) -> None:
        """Queue a request; it joins the running batch as soon as it fits.

        generation_config: a transformers GenerationConfig or a PlainConfig, used instead of the checkpoint's for fields
        that sampling_params does not set. pooling: for a request that only encodes; its output has an embedding. lora:
        name of the adapter to compute with; None: no adapter.
        Raises PromptError or MediaError for a bad prompt, ParameterError for bad parameters or a request id in use,
        CapacityError if the request could never fit, QueueFullError if limits.max_queue_length requests are waiting,
        and RequestFailedError if a mapper or a tokenizer raises.
        """
        if not isinstance(request_id, str):
            raise ParameterError(
                f"{{request_id}} must be a string, not {request_id!r}", param="request_id", value=request_id
            )
        with self._owned():
            self.executor.check_open()
            self.runner.check_queue()
            request = self.inputs(Request(prompt, sampling_params, generation_config, pooling, lora))
            self.runner.call(lambda: self.runner.tasks.add_bare(request_id, request))

    def step(self) -> list[RequestOutput]:
        """Compute one step. Returns the current outputs of the requests of `add_request` that took part.

        Includes requests that took part in steps of other callers since the last call. A finished request is returned
        once. A failed request is finished and has an `error`.
        """
        with self._owned():

            def step() -> list[RequestOutput]:
                self.core.step()
                self.runner.tasks.distribute()
                return self.runner.tasks.take_bare()

            return self.runner.call(step)

    def abort_request(self, request_id: str) -> None:
        """Drop a request of `add_request` at any time and free its memory; do nothing for an unknown id."""
        with self._owned():
            self.runner.call(lambda: self.runner.tasks.abort_bare(request_id))

    def load_adapter(self, name: str, folder: str | Path) -> None:
        """Load a LoRA adapter that requests may choose from now on, in any thread. See Adapters.load for errors."""
        self.adapters.load(name, folder)

    def unload_adapter(self, name: str) -> None:
        """Unload an adapter, in any thread. Requests that use it go on. Raises ParameterError for an unknown name."""
        self.adapters.unload(name)

    def close(self) -> None:
        """Free the model's and the cache's memory and end the engine's processes, as leaving a ``with`` statement does.

        Unfinished and later requests fail. In a forked process this does nothing: the engine belongs to the parent.
        """
        if self.runner.is_forked_copy:
            return
        with self._owned():
            self.runner.call(self.executor.close)

    @property
    def has_unfinished_requests(self) -> bool:
        """True if a request waits or runs, or if `step` has not yet returned a finished one."""
        return self.core.has_unfinished or bool(self.runner.tasks.bare)

    @property
    def num_encoder_runs(self) -> int:
        """Number of encoder inputs computed so far."""
        return self.block_manager.num_encoder_runs

    @property
    def num_encoder_hits(self) -> int:
        """Number of requests so far whose encoder input was already in the cross-attention cache."""
        return self.block_manager.num_encoder_hits

    @contextmanager
    def _owned(self) -> Iterator[None]:
        """Raise ParameterError while another thread owns the engine."""
        thread = threading.current_thread()
        with self._owner_lock:
            owner = self._owner
            free = owner is None or owner is thread or not owner.is_alive()
            if free:
                self._owner = thread
        if owner is not None and not free:
            raise ParameterError(
                f"this engine is used by thread {owner.name!r}, and an engine belongs to one thread. Call it from "
                "there, or use Transcriber, TextGenerator or engine.runner, which several threads may call"
            )
        self._num_calls += 1
        try:
            yield
        finally:
            self._num_calls -= 1
            if not self._num_calls and not self.runner.tasks.bare:
                self._owner = None


def describe(config: EngineConfig) -> ModelDescription:
    """Describe a model, and check that it can be split as configured, before any weight is loaded.

    Raises what Engine raises, except for errors of loading weights.
    """
    with _IMPORTING:
        plugins = discover()
    path = locate(config.model, model_dir=config.model_dir, offline=config.offline, plugins=plugins)
    with _IMPORTING:
        described = describe_model(path, config.model, config.plugin, plugins)
        check_default_prompt(described)
    if config.num_ranks > 1:
        check_parallel_sizes(described, config.tensor_parallel_size, config.pipeline_parallel_size)
    return described


def _warn_of_small_cache(manager: BlockSpaceManager, shape: ModelShape) -> None:
    """Warn if the cache is too small for a request of the model's full length, such as a window of a speech model."""
    source, target, num_blocks = shape.max_source_positions, shape.max_target_positions, manager.num_device_blocks
    if source is None or target is None:
        return
    needed = manager.num_blocks_for(source) + manager.num_blocks_for(target)
    if needed > num_blocks:
        logger.warning(
            "the cache has %d blocks, and a request of the model's full length takes %d: requests that do not fit are "
            "refused; raise kv_cache_bytes%s",
            num_blocks,
            needed,
            f" ({needed / num_blocks:.2f} times as much)" if num_blocks else "",
        )


def _output_of(request: PreparedRequest) -> Job:
    (output,) = yield Submit([request])
    return output


def _one_each(params: Any, num_prompts: int) -> list[SamplingParams]:
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * num_prompts
    if isinstance(params, str) or not isinstance(params, Seq):
        raise not_params(params)
    if len(params) != num_prompts:
        message = f"{len(params)} {{sampling_params}} for {num_prompts} prompts; give one for all, or one each"
        raise ParameterError(message, param="sampling_params", value=params)
    return list(params)


@contextmanager
def _naming(index: int, num_prompts: int) -> Iterator[None]:
    """Add the prompt's index to an error, if there are several prompts."""
    try:
        yield
    except TranseptError as error:
        if num_prompts == 1:
            raise
        cause = error.__cause__ if isinstance(error, RequestFailedError) else error
        raise error.at(f"prompt {index}") from cause


class ClosesEngine(Closable):
    """An object that owns an engine, and closes it when it is closed."""

    engine: Engine

    def close(self) -> None:
        """Free the model and its memory, as `Engine.close` and leaving a ``with`` statement do."""
        self.engine.close()
