"""Engine: one model, for many requests at once. Requests in, tokens out, step by step or to their end."""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as Seq
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, cast

from tqdm import tqdm

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
from transept.core.request.input_processor import NOT_PARAMS, InputProcessor
from transept.core.request.inputs import PreparedRequest
from transept.core.request.preprocess import InputPreprocessor
from transept.core.request.prompts import Prompt, Request
from transept.core.request.sampling_params import SamplingParams
from transept.core.scheduling.block_manager import BlockSpaceManager
from transept.core.scheduling.encoder_slices import EncoderSlices
from transept.core.scheduling.scheduler import Scheduler
from transept.core.scheduling.stopping import StopChecker
from transept.errors import ParameterError, PromptError, RequestFailedError, TranseptError
from transept.lifetime import Closable
from transept.option_names import shows_options
from transept.registry.plugin_calls import tokenizers_of
from transept.registry.plugins import discover

logger = logging.getLogger(__name__)

_IMPORTING = threading.Lock()  # two threads that import transformers at once may see half of it


class Engine(Closable):
    """Runs one encoder/decoder model for many requests at once.

    model and options: see EngineConfig, which documents and checks them.
    Raises CheckpointError, UnsupportedModelError, ParameterError; CapacityError where there is too little memory.

    An engine belongs to one thread: from its first call, and until no call runs and no request of add_request is
    unfinished, every other thread gets a ParameterError. Transcriber and TextGenerator may be called from several
    threads, and so may `runner`, which runs jobs (`transept.core.jobs`); all of them share the engine's batch.

    spec, model_config, generation_config, source_tokenizer (of the encoder's text), tokenizer (of the decoder's, most
        often the same): what the checkpoint and its plugin declare. Those of a Hugging Face checkpoint are
        transformers' classes; of a CTranslate2 checkpoint, and of most of Whisper's in any format, PlainConfig and
        PlainTokenizer, which have the same names but no other methods than Transept calls.
    view: all of these, and the folder and its other settings, as the plugin's functions are given them.
    runner: runs jobs; see docs/jobs.md.
    """

    @shows_options(EngineConfig)
    def __init__(self, model: str | Path, **options: Any) -> None:
        config = EngineConfig(model=cast(str, model), **options)
        described = describe(config)
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
        ignored_settings.tell(self.generation_config)
        limits = config.scheduler_config(shape.max_source_positions, shape.max_target_positions)
        self.executor = _executor(WorkerConfig(checkpoint.path, config, limits), described)
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
        self.preprocess = InputPreprocessor(
            self.spec, self.view, shape, (self.source_tokenizer, self.tokenizer), config.limits
        )
        self.inputs = InputProcessor(self.preprocess, ignored_settings)
        self.core = EngineCore(self.executor, self.scheduler, StopChecker(self.tokenizer))
        self.runner = JobRunner(self.core, self.inputs, config.max_num_seqs, config.limits.max_queue_length)
        self._owner: threading.Thread | None = None  # who uses it
        self._owner_lock = threading.Lock()
        self._num_calls = 0  # of the owner, one within the other

    def generate(
        self,
        prompts: Prompt | Seq[Prompt],
        sampling_params: SamplingParams | Seq[SamplingParams] | None = None,
        *,
        generation_config: Any | None = None,
        progress: bool | None = None,
    ) -> list[RequestOutput]:
        """Run prompts to the end; the outputs are in the prompts' order.

        sampling_params: one for all, or one a prompt. generation_config: see `add_request`. progress: show a progress
        bar on stderr; by default when there are several prompts and stderr is a terminal.
        Raises PromptError, MediaError, ParameterError, CapacityError or RequestFailedError, naming the prompt; then
        nothing stays queued.
        """
        if not isinstance(prompts, Iterable):
            raise PromptError(f"prompts are strings or dicts, one or a list, not {type(prompts).__name__}")
        prompt_list = cast("list[Prompt]", [prompts] if isinstance(prompts, (str, Mapping)) else list(prompts))
        params_list = _one_each(sampling_params, len(prompt_list))
        if not prompt_list:
            return []
        show = len(prompt_list) > 1 if progress is None else progress
        disable = None if show and progress is None else not show  # None: tqdm looks whether stderr is a terminal
        outputs: dict[int, RequestOutput] = {}
        with self._owned():
            requests = []
            for index, (prompt, params) in enumerate(zip(prompt_list, params_list, strict=True)):
                with _naming(index, len(prompt_list)):
                    requests.append(self.inputs(Request(prompt, params, generation_config)))
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
    ) -> None:
        """Queue a request; it joins the running batch as soon as it fits.

        generation_config: a transformers GenerationConfig or a PlainConfig, to take instead of the checkpoint's, for
        what sampling_params leaves open.
        Raises PromptError or MediaError for a bad prompt, ParameterError for bad parameters or a request id in use,
        CapacityError when the request could never fit, QueueFullError when limits.max_queue_length requests wait
        already, RequestFailedError for what a mapper or a tokenizer raises.
        """
        if not isinstance(request_id, str):
            raise ParameterError(f"request_id must be a string, not {request_id!r}")
        with self._owned():
            self.executor.check_open()
            self.runner.check_queue()
            request = self.inputs(Request(prompt, sampling_params, generation_config))
            self.runner.call(lambda: self.runner.tasks.add_bare(request_id, request))

    def step(self) -> list[RequestOutput]:
        """Compute one step. Returns the requests of `add_request` that took part, as they now stand.

        Among them those that took part in steps of others since the last call. Finished ones are gone after; one that
        failed is finished, and has an `error`.
        """
        with self._owned():

            def step() -> list[RequestOutput]:
                self.core.step()
                self.runner.tasks.hand_on()
                return self.runner.tasks.take_bare()

            return self.runner.call(step)

    def abort_request(self, request_id: str) -> None:
        """Drop a request of `add_request` at any moment and free its memory; nothing happens if there is none."""
        with self._owned():
            self.runner.call(lambda: self.runner.tasks.abort_bare(request_id))

    def close(self) -> None:
        """Give back the model and the cache's memory, and end its processes. Leaving a ``with`` statement does so, too.

        Requests that are unfinished, or come later, fail. In a process that was forked nothing is closed: what there is
        belongs to the first one.
        """
        if self.runner.is_forked_copy:
            return
        with self._owned():
            self.runner.call(self.executor.close)

    @property
    def has_unfinished_requests(self) -> bool:
        """Whether any request still waits or runs, or its end has not been returned by `step`."""
        return self.core.has_unfinished or bool(self.runner.tasks.bare)

    @property
    def num_encoder_runs(self) -> int:
        """Encoder inputs computed so far."""
        return self.block_manager.num_encoder_runs

    @property
    def num_encoder_hits(self) -> int:
        """Requests so far that found their encoder's output in the cross-attention cache."""
        return self.block_manager.num_encoder_hits

    @contextmanager
    def _owned(self) -> Iterator[None]:
        """Refuse a thread while the engine is another one's."""
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
    """What a model is, and that it can be split as configured, before any weight is loaded.

    Raises what Engine raises, but for what shows when weights are loaded.
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


def _executor(config: WorkerConfig, described: ModelDescription) -> Executor:
    """An executor of one process or several."""
    if config.config.num_ranks == 1:
        return InProcessExecutor(config, described)
    from transept.core.execution.multi_process import MultiProcessExecutor

    return MultiProcessExecutor(config)


def _warn_of_small_cache(manager: BlockSpaceManager, shape: ModelShape) -> None:
    """Say so where a request as long as the model takes would be refused, as every one of a model of speech may be."""
    source, target, num_blocks = shape.max_source_positions, shape.max_target_positions, manager.num_device_blocks
    if source is None or target is None:
        return
    needed = manager.num_blocks_for(source) + manager.num_blocks_for(target)
    if needed > num_blocks:
        logger.warning(
            "the cache has %d blocks, and a request of the model's full length takes %d: one that does not fit is "
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
        raise ParameterError(NOT_PARAMS.format(type(params).__name__))
    if len(params) != num_prompts:
        raise ParameterError(f"{len(params)} sampling_params for {num_prompts} prompts; give one for all, or one each")
    return list(params)


@contextmanager
def _naming(index: int, num_prompts: int) -> Iterator[None]:
    """Say in an error which of several prompts it is about."""
    try:
        yield
    except TranseptError as error:
        if num_prompts == 1:
            raise
        cause = error.__cause__ if isinstance(error, RequestFailedError) else error
        raise type(error)(f"prompt {index}: {error}") from cause


class ClosesEngine(Closable):
    """Something with an engine that is closed with it."""

    engine: Engine

    def close(self) -> None:
        """Give back the model and its memory, as `Engine.close` does. Leaving a ``with`` statement does so, too."""
        self.engine.close()
