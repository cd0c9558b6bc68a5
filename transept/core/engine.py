"""The engine: requests in, tokens out, step by step."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, cast

from tqdm import tqdm

from transept.core.beam_search import BeamSearch
from transept.core.block_manager import BlockSpaceManager
from transept.core.checkpoints.checkpoint import Checkpoint
from transept.core.checkpoints.described_model import model_shape
from transept.core.checkpoints.formats import open_checkpoint
from transept.core.checkpoints.hf_configs import load_config, load_generation_config, load_tokenizer
from transept.core.checkpoints.source import locate
from transept.core.checkpoints.weight_map import WeightMap
from transept.core.config import EngineConfig
from transept.core.execution.model_runner import IssuedStep
from transept.core.execution.worker import Worker
from transept.core.generation_defaults import num_forced_tokens, tokenize_bad_words, warn_of_unsupported
from transept.core.generation_defaults import resolve as resolve_params
from transept.core.look_ahead import can_look_ahead, pending
from transept.core.model import ForConditionalGeneration, ModelShape
from transept.core.outputs import RequestOutput
from transept.core.preprocess import InputPreprocessor
from transept.core.prompts import Prompt
from transept.core.sampling_params import SamplingParams
from transept.core.scheduler import Scheduler, SchedulerOutputs
from transept.core.sequence import SampledToken, Sequence, SequenceGroup
from transept.core.stopping import StopChecker
from transept.errors import CapacityError, CheckpointError, MediaError, ParameterError, PromptError
from transept.option_names import shows_options
from transept.registry.lookup import find_model
from transept.registry.plugins import discover
from transept.registry.spec import ModelSpec, resolve

_NOT_PARAMS = "sampling_params must be SamplingParams, not {}; of a dict, SamplingParams(**it) makes one"


class Engine:
    """Runs one encoder/decoder model for many requests at once.

    model and options: see EngineConfig, which documents and checks them.
    Raises CheckpointError, UnsupportedModelError, ParameterError; CapacityError where a GPU has too little memory.

    spec, model_config, generation_config, tokenizer: what the checkpoint and its plugin declare.
    """

    @shows_options(EngineConfig)
    def __init__(self, model: str | Path, **options: Any) -> None:
        config = EngineConfig(model=str(model), **options)
        checkpoint = open_checkpoint(locate(config.model))
        config = dataclasses.replace(config, quantization=config.quantization or checkpoint.quantization)
        self.config = config = config.on_this_machine()
        self.spec: ModelSpec = find_model(discover(), checkpoint.architectures, config.model, config.plugin)
        weight_map = _weight_map(self.spec, checkpoint)
        self.model_config = load_config(checkpoint, weight_map)
        self.generation_config = load_generation_config(checkpoint, weight_map, self.model_config)
        warn_of_unsupported(self.generation_config, config.model)
        self.tokenizer = load_tokenizer(checkpoint.path)
        eos_token_ids = _eos_token_ids(self.generation_config, self.model_config)

        model_class: type[ForConditionalGeneration] = resolve(self.spec.model_class)
        self.shape: ModelShape = model_shape(self.spec, model_class, self.model_config, checkpoint)
        limits = config.scheduler_config(self.shape.max_source_positions, self.shape.max_target_positions)
        self.worker = Worker(model_class, self.model_config, checkpoint, weight_map, config, limits, eos_token_ids)
        self.block_manager = BlockSpaceManager(
            config.block_size, self.worker.num_device_blocks, self.worker.num_host_blocks
        )
        self.scheduler = Scheduler(limits, self.block_manager)
        self.preprocess = InputPreprocessor(
            self.spec,
            self.model_config,
            self.tokenizer,
            max_source_positions=self.shape.max_source_positions,
            max_target_positions=self.shape.max_target_positions,
            encoder_takes_text=self.shape.encoder_takes_text,
        )
        self.stop_checker = StopChecker(eos_token_ids, self.tokenizer)
        self._arrivals = count()
        self._seq_ids = count()
        self._request_ids = count()
        self._issued: tuple[SchedulerOutputs, IssuedStep] | None = None  # what the device computes

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
        Raises PromptError, MediaError, ParameterError or CapacityError, naming the prompt; then nothing stays queued.
        """
        if self.scheduler.has_unfinished:
            raise ParameterError("requests of add_request() are unfinished: step() to their end, or abort them")
        prompt_list = cast("list[Prompt]", [prompts] if isinstance(prompts, (str, Mapping)) else list(prompts))
        params_list = _one_each(sampling_params, len(prompt_list))
        ids = [f"generate-{next(self._request_ids)}" for _ in prompt_list]
        show = len(prompt_list) > 1 if progress is None else progress
        disable = None if show and progress is None else not show  # None: tqdm looks whether stderr is a terminal
        outputs: dict[str, RequestOutput] = {}
        try:
            for index, (request_id, prompt, params) in enumerate(zip(ids, prompt_list, params_list, strict=True)):
                with _naming(index, len(prompt_list)):
                    self.add_request(request_id, prompt, params, generation_config=generation_config)
            with tqdm(total=len(ids), desc="generate", unit="prompt", disable=disable) as bar:
                while self.has_unfinished_requests:
                    for group in self._step():
                        if group.finished:
                            outputs[group.request_id] = RequestOutput.from_seq_group(group)
                            bar.update()
        finally:
            for request_id in ids:
                self.abort_request(request_id)
        return [outputs[request_id] for request_id in ids]

    def add_request(
        self,
        request_id: str,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        *,
        generation_config: Any | None = None,
    ) -> None:
        """Queue a request; it joins the running batch as soon as it fits.

        generation_config: a transformers GenerationConfig to take instead of the checkpoint's, for what sampling_params
        leaves open.
        Raises PromptError or MediaError for a bad prompt, ParameterError for bad parameters or a request id in use,
        CapacityError when the request could never fit.
        """
        if not isinstance(sampling_params, SamplingParams | None):
            raise ParameterError(_NOT_PARAMS.format(type(sampling_params).__name__))
        inputs = self.preprocess(prompt)
        prompt_token_ids = inputs.decoder.token_ids
        params = resolve_params(
            sampling_params or SamplingParams(),
            generation_config or self.generation_config,
            prompt_token_ids=prompt_token_ids,
            max_positions=self.shape.max_target_positions,
            vocab_size=self.shape.vocab_size,
        )
        if params.stop and self.tokenizer is None:
            raise ParameterError("stop strings need a tokenizer, which this checkpoint lacks; pass stop_token_ids")
        params = tokenize_bad_words(params, self.tokenizer)
        if params.prompt_probe is not None:
            shape = self.shape
            params.prompt_probe.check(
                len(prompt_token_ids),
                shape.vocab_size,
                shape.num_decoder_layers,
                shape.num_heads or shape.num_kv_heads,
            )
        group = SequenceGroup(
            request_id,
            [Sequence(next(self._seq_ids), inputs)],
            Sequence(next(self._seq_ids), inputs, from_decoder_prompt=False),
            params,
            next(self._arrivals),
        )
        if params.beam_search:
            num_forced = num_forced_tokens(prompt_token_ids, params.forced_bos_token_id)
            group.beam_search = BeamSearch(params, num_forced, len(self.stop_checker.eos_token_ids))
        self.scheduler.add_seq_group(group)

    def step(self) -> list[RequestOutput]:
        """Compute one step. Returns every request that took part, as it now stands; finished ones are gone after."""
        groups = self._step()
        for group in groups:
            for seq in group.unfinished_seqs:
                self.stop_checker.update_text(seq, group.sampling_params)
        return [RequestOutput.from_seq_group(group) for group in groups]

    def abort_request(self, request_id: str) -> None:
        """Drop a request at any moment and free its memory; nothing happens if it is finished or unknown."""
        self.scheduler.abort_seq_group(request_id)

    @property
    def has_unfinished_requests(self) -> bool:
        """Whether any request still waits or runs."""
        return self.scheduler.has_unfinished

    @property
    def num_encoder_runs(self) -> int:
        """Encoder inputs computed so far."""
        return self.block_manager.num_encoder_runs

    @property
    def num_encoder_hits(self) -> int:
        """Requests so far that found their encoder's output in the cross-attention cache."""
        return self.block_manager.num_encoder_hits

    def _step(self) -> list[SequenceGroup]:
        """Issue a step, collect its tokens, append them. Returns the groups that took part.

        A device that computes on its own gets the next step before this one's tokens are collected (`look_ahead`).

        Invariant: after a failure every request that is left can go on. Running requests compute the failed token
        again; newcomers, whose encoder may have failed, are dropped.
        """
        if self._issued is None:
            self._issued = self._issue()
        scheduled, step = self._issued
        ahead = None
        if self.worker.computes_alone and can_look_ahead(scheduled.groups, self.scheduler):
            with pending(scheduled.groups):
                ahead = self._issue(step)
        self._issued = ahead
        try:
            output = step.collect()
        except BaseException:
            self._issued = None
            self.scheduler.abort_newcomers(scheduled)
            if ahead is not None:
                self.scheduler.abort_newcomers(ahead[0])
            raise
        groups = [group for group in scheduled.groups if not group.finished]  # meanwhile some ended, or were aborted
        for group in groups:
            if output.probes:
                group.probe_result = output.probes.get(group.request_id, group.probe_result)
            if group.beam_search is not None:
                self._advance_beams(group, group.beam_search, output.sampled)
                continue
            for seq in group.unfinished_seqs:
                self._append(group, seq, output.sampled[seq.seq_id])
        self.scheduler.free_finished_seq_groups()
        if ahead is not None and all(group.finished for group in ahead[0].groups):
            self._issued = None  # nobody waits for it
        return groups

    def _issue(self, last: IssuedStep | None = None) -> tuple[SchedulerOutputs, IssuedStep]:
        """Schedule a step and give it to the device. last: the one before, if its tokens are not collected yet."""
        scheduled = self.scheduler.schedule()
        try:
            return scheduled, self.worker.issue(scheduled, last)
        except BaseException:
            self.scheduler.abort_newcomers(scheduled)
            raise

    def _append(self, group: SequenceGroup, seq: Sequence, tokens: list[SampledToken]) -> None:
        """Give a sequence its new token; a request's further samples fork from it first."""
        owners = [seq]
        for index in range(1, len(tokens)):
            child = seq.fork(next(self._seq_ids), index)
            self.scheduler.fork_seq(seq, child)
            group.seqs.append(child)
            owners.append(child)
        for owner, token in zip(owners, tokens, strict=True):
            owner.append_token(token)
            self.stop_checker.check(owner, group.sampling_params)

    def _advance_beams(self, group: SequenceGroup, search: BeamSearch, sampled: dict[int, list[SampledToken]]) -> None:
        """Give a request's beams their new tokens: some fork, some are dropped, all end with the search.

        A beam that goes on more than once keeps its blocks for the best continuation; the others share them until
        they write. Dropped beams are freed first, so that the group never holds more than it was admitted with.
        """
        params = group.sampling_params
        going_on = search.advance(
            group.seqs, sampled, lambda token, num_tokens: self.stop_checker.end(token, num_tokens, params)
        )
        kept = {continuation.parent.seq_id for continuation in going_on}
        for seq in group.seqs:
            if seq.seq_id not in kept:
                self.scheduler.free_seq(seq)
        beams: list[Sequence] = []
        for continuation in going_on:
            beam = parent = continuation.parent
            if beam in beams:
                beam = parent.fork(next(self._seq_ids), 0)
                self.scheduler.fork_seq(parent, beam)
            beams.append(beam)
        for beam, continuation in zip(beams, going_on, strict=True):
            beam.append_token(continuation.token)
        group.seqs = beams or search.hypotheses[: params.num_return_sequences]
        for seq in group.seqs:
            if seq.finished:
                self.stop_checker.update_text(seq, params)


def _weight_map(spec: ModelSpec, checkpoint: Checkpoint) -> WeightMap:
    if checkpoint.format not in spec.weight_maps:
        known = ", ".join(sorted(spec.weight_maps)) or "none"
        raise CheckpointError(
            f'"{checkpoint.path}" is a {checkpoint.format} checkpoint; the "{spec.name}" plugin reads: {known}'
        )
    weight_map: WeightMap = resolve(spec.weight_maps[checkpoint.format])
    return weight_map


def _eos_token_ids(generation_config: Any, model_config: Any) -> tuple[int, ...]:
    eos = generation_config.eos_token_id
    eos = getattr(model_config, "eos_token_id", None) if eos is None else eos
    if eos is None:
        return ()
    return (eos,) if isinstance(eos, int) else tuple(eos)


def _one_each(params: SamplingParams | Seq[SamplingParams] | None, num_prompts: int) -> list[SamplingParams]:
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * num_prompts
    if isinstance(params, Mapping):
        raise ParameterError(_NOT_PARAMS.format(type(params).__name__))
    if len(params) != num_prompts:
        raise ParameterError(f"{len(params)} sampling_params for {num_prompts} prompts; give one for all, or one each")
    return list(params)


@contextmanager
def _naming(index: int, num_prompts: int) -> Iterator[None]:
    """Say in an error which of several prompts it is about."""
    try:
        yield
    except (PromptError, MediaError, ParameterError, CapacityError) as error:
        if num_prompts == 1:
            raise
        raise type(error)(f"prompt {index}: {error}") from error
