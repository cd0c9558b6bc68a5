"""ModelRunner: computes a step on one device: encodes new inputs, decodes all requests, draws tokens.

`transept.core.execution.encoder_runner` and `decoder_runner` run the model. This module handles the step as a whole: it
may be issued before the previous one is collected, it is bisected if it fails, and either all ranks compute it or none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from transept.core.execution.checked_model import CheckedModel
from transept.core.execution.decoder_runner import DecoderRunner
from transept.core.execution.device_errors import fatal_errors_end_the_engine
from transept.core.execution.draft_runner import DraftRunner
from transept.core.execution.drawn import Chosen, Drawn, SamplingRow
from transept.core.execution.embeddings import Embeddings
from transept.core.execution.encoder_runner import EncoderRunner
from transept.core.execution.isolation import Isolation, ends_engine, interruption_of
from transept.core.execution.kv_cache import KVCache
from transept.core.execution.model_adapters import ModelAdapters
from transept.core.execution.prompt_probes import PromptProbes
from transept.core.execution.recorder import Recorder
from transept.core.execution.sampler import Sampler
from transept.core.execution.sliced_encodes import SlicedEncodes
from transept.core.kernels.dispatch import share_num_threads
from transept.core.layers.projected_attention import MakesKeysAndValues
from transept.core.model import ForConditionalGeneration
from transept.core.scheduling.step import PENDING, SequenceGroupMetadata, StepInput, StepOutput
from transept.errors import RequestFailedError
from transept.registry.spec import ModelSpec


class IssuedStep:
    """A step that was issued to the device, which may still be computing it.

    failed: the step's output, so far only with its failures. embeddings: of encodes, on the device, by encode id.
    """

    def __init__(
        self,
        parts: Sequence[Part] = (),
        failed: StepOutput | None = None,
        embeddings: dict[int, Tensor] | None = None,
    ) -> None:
        self._embeddings = Embeddings(embeddings or {})
        self.drawn = Drawn([each for part in parts for each in part.chosen])
        self._probes = [part.probes for part in parts if part.probes is not None]
        self._failed = failed or StepOutput()

    def collect(self) -> StepOutput:
        """Wait for the device. Returns the step's output."""
        probes = {request_id: result for each in self._probes for request_id, result in each.collect().items()}
        return replace(self._failed, sampled=self.drawn.collect(), probes=probes, embeddings=self._embeddings.collect())


class Part(NamedTuple):
    """The results, on the device, of requests that were computed together. probes: None without a recorded probe."""

    chosen: list[Chosen]
    probes: PromptProbes | None


class ModelRunner:
    """Runs steps on one device.

    spec: names the model's plugin in errors. cross_attentions: of the decoder layers that have a cache here; default:
    the model's. adapters: of the model; default: with one slot. drafts: runs the draft model, if there is one.
    """

    def __init__(
        self,
        spec: ModelSpec,
        model: ForConditionalGeneration,
        cache: KVCache,
        block_size: int,
        sampler: Sampler,
        cross_attentions: Sequence[MakesKeysAndValues | None] | None = None,
        adapters: ModelAdapters | None = None,
        drafts: DraftRunner | None = None,
    ) -> None:
        checked = CheckedModel(spec, model)
        self.spec, self.model, self.cache, self.block_size, self.sampler = spec, model, cache, block_size, sampler
        self.device = cache.layers[0].device
        self.ranks, self.stage = model.context.group, model.context.stage
        if cross_attentions is None:
            cross_attentions = model.cross_attentions()
        self.adapters = adapters or ModelAdapters(model, 1)
        self.encoder = EncoderRunner(checked, cross_attentions, cache, block_size, self.adapters)
        self.sliced = SlicedEncodes(self.encoder)
        self.decoder = DecoderRunner(checked, cache, block_size, self.adapters)
        self.drafts = drafts
        if drafts is not None and drafts.encoder is None:
            self.encoder.also_write(drafts.cross_attentions, drafts.cache.layers)

    def record_steps(self) -> None:
        """Replay steps and encoder passes as CUDA graphs from now on. The attention backend must be `replayable`."""
        recorder = Recorder(self.device)
        self.encoder.record(recorder)
        self.decoder.record(recorder)
        if self.drafts is not None:
            self.drafts.decoder.record(recorder)

    @contextmanager
    def launching(self) -> Iterator[None]:
        """Launch kernels one by one in this context, without CUDA graphs."""
        graphs = self.encoder.graphs, self.decoder.graphs
        self.encoder.graphs = self.decoder.graphs = None
        try:
            yield
        finally:
            self.encoder.graphs, self.decoder.graphs = graphs

    @torch.inference_mode()
    def issue(self, step: StepInput, last: IssuedStep | None = None) -> IssuedStep:
        """Move blocks and load adapters, then issue one step.

        An exception fails only the encode or the request that raises it.

        Inputs are encoded first; a request whose encode failed is not computed. In a pipeline the step fails as a
        whole, because other stages may already compute later steps; see StepOutput.
        last: the previous step, if the host does not know all of its tokens yet.
        Raises ForkedProcessError and ExchangeError, which fail the whole step, and EngineDeadError once the device has
        failed.
        """
        with fatal_errors_end_the_engine(self.device), on_device(self.device):
            self.cache.move(step.moves)
            if self.drafts is not None:
                self.drafts.move(step.moves)
            for load in step.loads:
                self.adapters.load(load.slot, load.updates)
            if self.device.type == "cpu":
                share_num_threads()
            if self.stage.count > 1:
                return self._issue_at_stage(step)
            self.sliced.begin_step(step.encodes)
            encodes, embeddings = Isolation(step.encodes, self.device), dict[int, Tensor]()
            for inputs in encodes:
                with encodes.isolating(inputs), self._all_ranks_or_none(self.sliced.drop):
                    self.encoder(self.sliced(inputs, embeddings), embeddings)
            failed_encodes = {encode.encode_id: error for encode, error in encodes.failed}
            interruption = encodes.interruption or self._draft(step, failed_encodes)
            drawn = set() if last is None else set(last.drawn.seq_ids)
            known = [each for each in step.decodes if each.encode_id not in failed_encodes and _are_known(each, drawn)]
            decodes, parts = Isolation(known, self.device, SequenceGroupMetadata.without_drafts), list[Part]()
            for groups in decodes:
                with decodes.isolating(groups):
                    with self._all_ranks_or_none():
                        decoded = self._decode(groups, last)
                    parts += decoded
            failures = {group.request_id: error for group, error in decodes.failed}
            interruption = decodes.interruption or interruption
            failed = StepOutput(failures=failures, failed_encodes=failed_encodes, interruption=interruption)
            return IssuedStep(parts, failed, embeddings)

    def _draft(self, step: StepInput, failed_encodes: Collection[int]) -> BaseException | None:
        """Let the draft model encode and fill the drafts of a step. If it fails, the drafts are wrong, and no more.

        Returns the interruption that a logits processor raised for its tokens.
        """
        if self.drafts is None:
            return None
        try:
            with self._all_ranks_or_none():
                self.drafts.encode([each for each in step.encodes if each.encode_id not in failed_encodes])
                self.drafts.propose(step.decodes)
        except Exception as error:
            if ends_engine(error, self.device):
                raise
            self.drafts.give_up(step.decodes, error)
            return interruption_of(error)
        return None

    def _issue_at_stage(self, step: StepInput) -> IssuedStep:
        """Issue a stage's part of a step. If it raises, send the error to the stages that wait for this one."""
        try:
            with self._all_ranks_or_none():
                return self._compute(step)
        except Exception as error:
            if ends_engine(error, self.device):
                raise
            self.stage.fail(error, encodes=bool(step.encodes))
            failed = StepOutput(
                failures={group.request_id: error for group in step.decodes},
                failed_encodes={encode.encode_id: error for encode in step.encodes},
                interruption=interruption_of(error),
                whole_step_failed=len(step.decodes) + len(step.encodes) > 1 or step.has_drafts,
            )
            return IssuedStep((), failed)

    @torch.inference_mode()
    def compute(self, step: StepInput) -> IssuedStep:
        """Issue one step without isolating failures. Raises the model's and PyTorch's errors."""
        if self.device.type == "cpu":
            share_num_threads()
        return self._compute(step)

    @contextmanager
    def _all_ranks_or_none(self, undo: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Compute in this context. If one rank fails, all ranks call `undo` and raise, so that all bisect alike."""
        if self.ranks.size == 1:
            yield
            return
        error: Exception | None = None
        try:
            yield
        except Exception as raised:
            if ends_engine(raised, self.device):
                raise
            error = raised
        failed = self.ranks.all_gather_int(int(error is not None))
        if any(failed):
            undo()
        if error is not None:
            raise error
        if any(failed):
            raise RequestFailedError(f"rank {failed.index(1)} failed to compute what rank {self.ranks.rank} computed")

    def _compute(self, step: StepInput) -> IssuedStep:
        """Encode new inputs, decode all requests, draw tokens."""
        embeddings: dict[int, Tensor] = {}
        self.encoder(step.encodes, embeddings)
        return IssuedStep(self._decode(step.decodes, None), embeddings=embeddings)

    def _decode(self, groups: Sequence[SequenceGroupMetadata], last: IssuedStep | None) -> list[Part]:
        """Decode requests and draw their tokens."""
        parts: list[Part] = []
        drawn = None if last is None else last.drawn
        for decode in (self.decoder.replay, self.decoder.launch):
            decoded = decode(groups, drawn) if groups else None
            if decoded is not None:  # draw now: the next computation may overwrite the logits
                rows = _sampling_rows(decoded.groups)
                parts.append(Part(self.sampler(decoded.logits, rows), decoded.probes))
                computed = {group.request_id for group in decoded.groups}
                groups = [group for group in groups if group.request_id not in computed]
        return parts


def on_device(device: torch.device) -> AbstractContextManager[Any]:
    """Make a GPU the current device, on which Triton launches kernels and PyTorch records graphs."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _are_known(group: SequenceGroupMetadata, drawn: Collection[int]) -> bool:
    """True if the previous step drew all PENDING tokens of a request. drawn: the sequences for which it drew one.

    It drew none for a request that failed in it; the host learns of the failure when it collects that step.
    """
    return all(data.last_token_id != PENDING or seq_id in drawn for seq_id, data in group.seq_data.items())


def _sampling_rows(step: Sequence[SequenceGroupMetadata]) -> list[SamplingRow]:
    return [
        SamplingRow(seq_id, prefix, group.sampling_params, group.num_samples)
        for group in step
        for seq_id, data in group.seq_data.items()
        for prefix in data.prefixes()
    ]
