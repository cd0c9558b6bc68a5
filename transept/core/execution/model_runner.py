"""The model runner: computes a step on one device. New inputs are encoded, everyone is decoded, tokens are drawn.

`transept.core.execution.encoder_runner` and `decoder_runner` run the model. Here is what a step is as a whole: issued
before the last one is collected, computed in halves where it fails, and by all ranks or by none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import torch

from transept.core.execution.checked_model import CheckedModel
from transept.core.execution.decoder_runner import Decoded, DecoderRunner
from transept.core.execution.device_errors import fatal_errors_end_the_engine, is_fatal
from transept.core.execution.encoder_runner import EncoderRunner
from transept.core.execution.isolation import Isolation, interruption_of
from transept.core.execution.kv_cache import KVCache
from transept.core.execution.prompt_probes import PromptProbes
from transept.core.execution.recorder import Recorder
from transept.core.execution.sampler import Choices, Drawn, Sampler, SamplingRow
from transept.core.execution.sliced_encodes import SlicedEncodes
from transept.core.kernels.dispatch import share_num_threads
from transept.core.layers.projected_attention import MakesKeysAndValues
from transept.core.model import ForConditionalGeneration
from transept.core.parallel.group import ExchangeError
from transept.core.scheduling.step import PENDING, SequenceGroupMetadata, StepInput, StepOutput
from transept.errors import RequestFailedError
from transept.registry.spec import ModelSpec


class IssuedStep:
    """A step that the device was given, and may still compute.

    failures, failed_encodes, interruption, whole_step_failed: see StepOutput.
    """

    def __init__(
        self,
        parts: Sequence[Part] = (),
        failures: Mapping[str, Exception] | None = None,
        failed_encodes: Mapping[int, Exception] | None = None,
        interruption: BaseException | None = None,
        whole_step_failed: bool = False,
    ) -> None:
        self.drawn = Drawn([part.choices for part in parts])
        self.probes = [part.probes for part in parts if part.probes is not None]
        self.failures, self.failed_encodes = dict(failures or {}), dict(failed_encodes or {})
        self.interruption = interruption
        self.whole_step_failed = whole_step_failed

    def collect(self) -> StepOutput:
        """What came of it; waits for the device."""
        probes = {request_id: result for each in self.probes for request_id, result in each.collect().items()}
        failures = self.failures, self.failed_encodes
        return StepOutput(self.drawn.collect(), probes, *failures, self.interruption, self.whole_step_failed)


class Part(NamedTuple):
    """Requests of a step that were computed together, on the device. probes: None where nobody asks."""

    choices: Choices
    probes: PromptProbes | None


class ModelRunner:
    """Runs steps on one device.

    spec: names the model's plugin where the model fails. cross_attentions: of the decoder layers that have a cache
    here; default those of the model.
    """

    def __init__(
        self,
        spec: ModelSpec,
        model: ForConditionalGeneration,
        cache: KVCache,
        block_size: int,
        sampler: Sampler,
        cross_attentions: Sequence[MakesKeysAndValues | None] | None = None,
    ) -> None:
        checked = CheckedModel(spec, model)
        self.spec, self.model, self.cache, self.block_size, self.sampler = spec, model, cache, block_size, sampler
        self.device = cache.layers[0].device
        self.ranks, self.stage = model.context.group, model.context.stage
        if cross_attentions is None:
            cross_attentions = model.cross_attentions()
        self.encoder = EncoderRunner(checked, cross_attentions, cache, block_size)
        self.sliced = SlicedEncodes(self.encoder)
        self.decoder = DecoderRunner(checked, cache, block_size)

    def record_steps(self) -> None:
        """Replay steps and encoder passes as CUDA graphs from now on. The attention backend must be `replayable`."""
        recorder = Recorder(self.device)
        self.encoder.record(recorder)
        self.decoder.record(recorder)

    @contextmanager
    def launching(self) -> Iterator[None]:
        """Launch what is computed within kernel by kernel."""
        graphs = self.encoder.graphs, self.decoder.graphs
        self.encoder.graphs = self.decoder.graphs = None
        try:
            yield
        finally:
            self.encoder.graphs, self.decoder.graphs = graphs

    @torch.inference_mode()
    def issue(self, step: StepInput, last: IssuedStep | None = None) -> IssuedStep:
        """Move blocks, then give the device one step; an exception fails only the encode or request that raises it.

        Inputs are encoded first; a request whose encode failed is not computed. Stages of a pipeline compute other
        steps by then: there the step fails as a whole, see StepOutput. last: the step before this one, if the host does
        not know all of its tokens yet.
        Raises ForkedProcessError and ExchangeError for all, and EngineDeadError once the device has failed.
        """
        with fatal_errors_end_the_engine(self.device), on_device(self.device):
            self.cache.swap_out(step.moves.swap_out)
            self.cache.swap_in(step.moves.swap_in)
            self.cache.copy(step.moves.copy)
            if self.device.type == "cpu":
                share_num_threads()
            if self.stage.count > 1:
                return self._issue_at_stage(step)
            self.sliced.begin_step(step.encodes)
            encodes = Isolation(step.encodes, self.device)
            for inputs in encodes:
                with encodes.isolating(inputs), self._all_ranks_or_none(self.sliced.drop):
                    self.encoder(self.sliced(inputs))
            failed_encodes = {encode.encode_id: error for encode, error in encodes.failed}
            drawn = set() if last is None else set(last.drawn.seq_ids)
            known = [each for each in step.decodes if each.encode_id not in failed_encodes and _are_known(each, drawn)]
            decodes, parts = Isolation(known, self.device), list[Part]()
            for groups in decodes:
                with decodes.isolating(groups):
                    with self._all_ranks_or_none():
                        decoded = self._decode(groups, last)
                    parts += decoded
            failures = {group.request_id: error for group, error in decodes.failed}
            return IssuedStep(parts, failures, failed_encodes, decodes.interruption or encodes.interruption)

    def _issue_at_stage(self, step: StepInput) -> IssuedStep:
        """Give the device a stage's part of a step. Stages that wait for this one are told if it raises."""
        try:
            with self._all_ranks_or_none():
                parts = self._compute(step)
            return IssuedStep(parts)
        except ExchangeError:
            raise
        except Exception as error:
            if is_fatal(error, self.device):
                raise
            self.stage.fail(error, encodes=bool(step.encodes))
            failures = {group.request_id: error for group in step.decodes}
            failed_encodes = {encode.encode_id: error for encode in step.encodes}
            several = len(failures) + len(failed_encodes) > 1
            return IssuedStep((), failures, failed_encodes, interruption_of(error), whole_step_failed=several)

    @torch.inference_mode()
    def compute(self, step: StepInput) -> IssuedStep:
        """Give the device one step without isolating failures: raises whatever a model or PyTorch raises."""
        if self.device.type == "cpu":
            share_num_threads()
        return IssuedStep(self._compute(step))

    @contextmanager
    def _all_ranks_or_none(self, undo: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Compute within; if one of several ranks fails, all do, call `undo`, and go on with the same halves."""
        if self.ranks.size == 1:
            yield
            return
        error: Exception | None = None
        try:
            yield
        except ExchangeError:
            raise
        except Exception as raised:
            if is_fatal(raised, self.device):
                raise
            error = raised
        failed = self.ranks.all_agree(int(error is not None))
        if any(failed):
            undo()
        if error is not None:
            raise error
        if any(failed):
            raise RequestFailedError(f"rank {failed.index(1)} failed to compute what rank {self.ranks.rank} computed")

    def _compute(self, step: StepInput) -> list[Part]:
        """Encode new inputs, decode everyone, draw tokens."""
        self.encoder(step.encodes)
        return self._decode(step.decodes, None)

    def _decode(self, groups: Sequence[SequenceGroupMetadata], last: IssuedStep | None) -> list[Part]:
        """Decode requests and draw their tokens."""
        parts: list[Part] = []
        drawn = None if last is None else last.drawn
        replayed = self.decoder.replay(groups, drawn)
        if replayed is not None:
            parts.append(self._draw(replayed))  # before the next computation changes the logits
            chosen = {group.request_id for group in replayed.groups}
            groups = [group for group in groups if group.request_id not in chosen]
        launched = self.decoder.launch(groups, drawn) if groups else None
        if launched is not None:
            parts.append(self._draw(launched))
        return parts

    def _draw(self, decoded: Decoded) -> Part:
        return Part(self.sampler(decoded.logits, _sampling_rows(decoded.groups)), decoded.probes)


def on_device(device: torch.device) -> AbstractContextManager[Any]:
    """Make a GPU the current one, on which Triton launches kernels and PyTorch records graphs."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _are_known(group: SequenceGroupMetadata, drawn: Collection[int]) -> bool:
    """True if the device has the tokens that the host awaits. drawn: sequences for which the last step drew one.

    It has none for a request that failed in that step, which the host learns when it collects it.
    """
    return all(data.last_token_id != PENDING or seq_id in drawn for seq_id, data in group.seq_data.items())


def _sampling_rows(step: Sequence[SequenceGroupMetadata]) -> list[SamplingRow]:
    return [
        SamplingRow(seq_id, data, group.sampling_params, group.num_samples)
        for group in step
        for seq_id, data in group.seq_data.items()
    ]
