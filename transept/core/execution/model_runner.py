"""The model runner: flattens a step's requests into tensors, runs the model, samples.

No padding anywhere: all encoder tokens (or features) of the prefills, then all decoder tokens of everyone, one after
the other, with AttentionMetadata saying whose is what.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor

from transept.core.attention.layer import RowsDifferError
from transept.core.attention.metadata import AttentionMetadata, slots_of
from transept.core.execution.decode_graphs import DecodeGraphs, put_pending
from transept.core.execution.freed_memory import large_blocks_given_back
from transept.core.execution.kv_cache import KVCache
from transept.core.execution.prompt_probes import PromptProbes
from transept.core.execution.replayed_steps import ReplayedSteps
from transept.core.execution.sampler import Choices, Drawn, ProcessorInterruptedError, Sampler, SamplingRow
from transept.core.kernels.dispatch import share_num_threads
from transept.core.model import ForConditionalGeneration
from transept.core.parallel_group import ExchangeError
from transept.core.request.inputs import EncoderInputs
from transept.core.scheduling.step import PENDING, SequenceGroupMetadata, StepOutput, num_blocks_behind
from transept.core.transfer import to_device, upload
from transept.errors import PluginError, RequestFailedError, TranseptError, is_interruption
from transept.registry.plugin_calls import plugin_failure, plugin_named
from transept.registry.spec import ModelSpec

# Encoder tokens computed at a time on a CPU: the activations of so many (about 10 MB a layer for Whisper tiny) stay in
# the last cache level, where a layer runs a third faster than on 12,000 tokens. Longer sequences run alone.
CPU_ENCODER_CHUNK = 2048
# In a pipeline, stages work on different chunks of a step: more of them leave stages idle for less time.
CHUNKS_A_STAGE = 2
SMALLEST_CHUNK = 256  # tokens; of fewer a layer takes as long


class IssuedStep:
    """A step that the device was given, and may still compute.

    failures: by request id, what was raised while that request was computed. interruption, whole_step_failed: see
        StepOutput.
    """

    def __init__(
        self,
        parts: Sequence[Part] = (),
        failures: Mapping[str, Exception] | None = None,
        interruption: BaseException | None = None,
        whole_step_failed: bool = False,
    ) -> None:
        self.drawn = Drawn([part.choices for part in parts])
        self.probes = [part.probes for part in parts if part.probes is not None]
        self.failures = dict(failures or {})
        self.interruption = interruption
        self.whole_step_failed = whole_step_failed

    def collect(self) -> StepOutput:
        """What came of it; waits for the device."""
        probes = {request_id: result for each in self.probes for request_id, result in each.collect().items()}
        return StepOutput(self.drawn.collect(), probes, self.failures, self.interruption, self.whole_step_failed)


class Part(NamedTuple):
    """Requests of a step that were computed together, on the device. probes: None where nobody asks."""

    choices: Choices
    probes: PromptProbes | None


class ModelRunner:
    """Runs steps on one device. spec: names the model's plugin where the model fails."""

    def __init__(
        self,
        spec: ModelSpec,
        model: ForConditionalGeneration,
        cache: KVCache,
        block_size: int,
        sampler: Sampler,
        graphs: DecodeGraphs | None = None,
    ) -> None:
        self.spec = spec
        self.model = model
        self.cache = cache
        self.block_size = block_size
        self.sampler = sampler
        self._replayed: ReplayedSteps | None = None
        self.device = cache.layers[0].device
        self.backend = model.context.attention_backend
        self.group, self.stage = model.context.group, model.context.stage
        self.kv_caches = self._caches_of_all_layers()
        shape = model.shape(model.config)
        self.vocab_size, self.window = shape.vocab_size, shape.window
        self._has_encoded = False
        self.graphs = graphs

    @property
    def graphs(self) -> DecodeGraphs | None:
        """The steps that are recorded; None: every step is computed kernel after kernel."""
        return None if self._replayed is None else self._replayed.graphs

    @graphs.setter
    def graphs(self, graphs: DecodeGraphs | None) -> None:
        self._replayed = None
        if graphs is not None:
            self._replayed = ReplayedSteps(
                self.model, self.cache, self.block_size, graphs, self._encode, self._features_of
            )

    @torch.inference_mode()
    def issue(self, step: Sequence[SequenceGroupMetadata], last: IssuedStep | None = None) -> IssuedStep:
        """Give the device one step, as `compute` does; what raises fails the request that it is about, and no other.

        A step that raises is computed again in halves, and so on, until what fails stands alone: twice log2(requests)
        computations for each that fails. That is harmless, since a request writes the same into its cache again.
        Stages of a pipeline compute other steps by then: there the step fails as a whole, see StepOutput.
        Raises ForkedProcessError for all, and ExchangeError.
        """
        share_num_threads()
        if self.stage.count > 1:
            return self._issue_at_stage(step)
        parts: list[Part] = []
        failures: dict[str, Exception] = {}
        interruption: BaseException | None = None
        drawn = set() if last is None else set(last.drawn.seq_ids)
        waiting = [[group for group in step if _tokens_are_known(group, drawn)]]
        while waiting:
            batch = waiting.pop()
            try:
                parts += self._compute_in_step(batch, last)
            except ExchangeError:
                raise
            except Exception as error:  # of whatever kind: a model, a mapper and a logits processor may be a plugin's
                interruption = _interruption(error) or interruption  # raised once all others have their tokens
                if len(batch) == 1:
                    failures[batch[0].request_id] = error
                else:
                    middle = len(batch) // 2
                    waiting += [batch[middle:], batch[:middle]]
        return IssuedStep(parts, failures, interruption)

    def _issue_at_stage(self, step: Sequence[SequenceGroupMetadata]) -> IssuedStep:
        """Give the device a stage's part of a step. Stages that wait for this one are told if it raises."""
        try:
            return IssuedStep(self._compute_in_step(step, None))
        except ExchangeError:
            raise
        except Exception as error:
            self.stage.fail(error, encodes=any(group.runs_encoder for group in step))
            failures = {group.request_id: error for group in step}
            return IssuedStep((), failures, _interruption(error), whole_step_failed=len(step) > 1)

    @torch.inference_mode()
    def compute(self, step: Sequence[SequenceGroupMetadata], last: IssuedStep | None = None) -> IssuedStep:
        """Give the device one step.

        last: the one before, where the host does not know all of its tokens yet. Raises whatever a model, a logits
        processor or PyTorch raises.
        """
        share_num_threads()
        return IssuedStep(self._compute(step, last))

    def _compute_in_step(self, step: Sequence[SequenceGroupMetadata], last: IssuedStep | None) -> list[Part]:
        """As `_compute`, but if one of several ranks fails, all do, and go on with the same halves."""
        if self.group.size == 1:
            return self._compute(step, last)
        error: Exception | None = None
        try:
            parts = self._compute(step, last)
        except ExchangeError:
            raise
        except Exception as raised:
            error = raised
        failed = self.group.all_agree(int(error is not None))
        if error is not None:
            raise error
        if any(failed):
            raise RequestFailedError(f"rank {failed.index(1)} failed to compute what rank {self.group.rank} computed")
        return parts

    def _compute(self, step: Sequence[SequenceGroupMetadata], last: IssuedStep | None) -> list[Part]:
        if not step:
            return []  # blocks have moved, nothing is computed
        drawn = None if last is None else last.drawn
        if self._replayed is None:
            return self._compute_eagerly(step, drawn)
        encoded = self._replayed.encode(step)
        replayable = self._replayed.part(step, encoded)
        logits = self._replayed(replayable, drawn) if replayable else None
        if logits is None:
            return self._compute_eagerly(step, drawn, encoded)
        parts = [Part(self.sampler(logits, _sampling_rows(replayable)), None)]
        chosen = {group.request_id for group in replayable}
        others = [group for group in step if group.request_id not in chosen]
        return [*parts, *self._compute_eagerly(others, drawn, encoded)] if others else parts

    def _compute_eagerly(
        self, step: Sequence[SequenceGroupMetadata], drawn: Drawn | None, encoded: bool = False
    ) -> list[Part]:
        """Compute requests kernel after kernel. encoded: whether what encoders make is in the cache already."""
        inputs = [] if encoded else [group.encoder_inputs for group in step if group.encoder_inputs is not None]
        with nullcontext() if self._has_encoded or not inputs else large_blocks_given_back():
            self._has_encoded |= bool(inputs)
            return self._launch(step, inputs, drawn)

    def _launch(
        self, step: Sequence[SequenceGroupMetadata], inputs: list[EncoderInputs], drawn: Drawn | None
    ) -> list[Part]:
        """The same. inputs: of the encoder."""
        encoder_hidden = self.stage.share_encoded(self._encode(inputs)) if inputs else None
        input_ids, positions, metadata = self._flatten(step, drawn)
        self.backend.plan(metadata)
        probes = PromptProbes(step, metadata, self.kv_caches, self.group, self.stage)
        if self._replayed is not None:
            self._replayed.watch(metadata, encoder_hidden)
        self.cache.wait()
        hidden = self._call("decode", input_ids, positions, encoder_hidden, self.kv_caches, metadata)
        _check_shape(self._named("decode"), hidden, len(input_ids), None)
        if self._replayed is not None:
            self._replayed.learn(metadata)
        if not self.stage.is_last:
            probes.hand_over(hidden)
            return []
        last_rows = self._last_rows(hidden, metadata)
        logits = self._call("compute_logits", last_rows)
        _check_shape(self._named("compute_logits"), logits, len(last_rows), self.vocab_size)
        probes.read(hidden, partial(self._call, "compute_logits"))
        return [Part(self.sampler(logits, _sampling_rows(step)), probes)]

    def _call(self, method: str, *arguments: Any, **keywords: Any) -> Any:
        """What a method of the model returns. Raises PluginFailedError for any foreign error but lack of memory."""
        try:
            with plugin_named(self.spec):
                return getattr(self.model, method)(*arguments, **keywords)
        except (TranseptError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            raise plugin_failure(self.spec, f"{type(self.model).__name__}.{method}", error) from error

    def _named(self, method: str) -> str:
        return f"{type(self.model).__name__}.{method} of {self.spec.known_as}"

    def _encode(self, batch: list[EncoderInputs]) -> Tensor:
        """Encoder hidden states of all prefills whose encoder runs, [encoder_tokens, hidden], computed in chunks."""
        limit = CPU_ENCODER_CHUNK if self.device.type == "cpu" else None
        if self.stage.count > 1:
            share = -(-sum(inputs.num_tokens for inputs in batch) // (CHUNKS_A_STAGE * self.stage.count))
            share = max(share, SMALLEST_CHUNK)
            limit = share if limit is None else min(limit, share)
        pieces = [self._encode_chunk(chunk) for chunk in _chunks(batch, limit)]
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces)

    def _caches_of_all_layers(self) -> list[Tensor]:
        """One a decoder layer, as models take them; empty ones for layers of other stages."""
        shape = self.model.shape(self.model.config)
        own = self.stage.decoder_layers(shape)
        elsewhere = self.cache.layers[0].new_empty(2, 0, *self.cache.layers[0].shape[2:])
        layers = range(shape.num_decoder_layers)
        return [self.cache.layers[layer - own.start] if layer in own else elsewhere for layer in layers]

    def _encode_chunk(self, batch: list[EncoderInputs]) -> Tensor:
        metadata = AttentionMetadata.for_encoder([inputs.num_tokens for inputs in batch])
        self.backend.plan(metadata)
        features = self._features_of(batch)
        input_ids = positions = None
        if batch[0].token_ids:
            input_ids = self._tensor([token for inputs in batch for token in inputs.token_ids])
            positions = self._tensor([position for inputs in batch for position in range(len(inputs.token_ids))])
        try:
            hidden = self._call("encode", input_ids, positions, metadata, **features)
        except PluginError as error:
            differ = error.__cause__
            if not isinstance(differ, RowsDifferError) or differ.metadata is not metadata:  # which a model may make
                raise
            raise _unlike_declared(self._named("encode"), batch, differ.rows) from None
        _check_encoded(self._named("encode"), batch, hidden)
        return hidden

    def _features_of(self, batch: list[EncoderInputs]) -> dict[str, list[Tensor]]:
        """Of inputs of one kind."""
        return {name: self._features([inputs.features[name] for inputs in batch]) for name in batch[0].features}

    def _features(self, features: list[Tensor]) -> list[Tensor]:
        """Features on the device; numbers of any floating dtype in the model's, all at once where they are alike."""
        features, dtype = [to_device(each, self.device) for each in features], self.model.compute_dtype
        if all(each.dtype is dtype or not each.is_floating_point() for each in features):
            return features
        if len({(each.shape, each.dtype) for each in features}) == 1:
            return [*torch.stack(features).to(dtype).unbind()]
        return [each.to(dtype) if each.is_floating_point() else each for each in features]

    def _flatten(
        self, step: Sequence[SequenceGroupMetadata], last: Drawn | None
    ) -> tuple[Tensor, Tensor, AttentionMetadata]:
        """The decoder's input ids and positions, [num_tokens] each, and the step's attention metadata."""
        token_ids: list[int] = []
        pending: dict[int, int] = {}
        positions: list[int] = []
        slots: list[int] = []
        query_lens: list[int] = []
        metadata = AttentionMetadata(block_size=self.block_size, window=self.window)
        for index, group in enumerate(step):
            for seq_id, data in group.seq_data.items():
                table, length = group.block_tables[seq_id], data.num_tokens
                if group.is_prefill:
                    token_ids += data.token_ids
                    positions += range(length)
                    query_lens.append(length)
                    slots += slots_of(table, length, self.block_size).tolist()
                else:
                    if data.last_token_id == PENDING:
                        pending[len(token_ids)] = seq_id
                    token_ids.append(data.last_token_id)
                    positions.append(length - 1)
                    query_lens.append(1)
                    length -= self._num_behind(length)
                    block, place = divmod(length - 1, self.block_size)
                    slots.append(table[block] * self.block_size + place)
                metadata.seq_lens.append(length)
                metadata.block_tables.append(table)
            metadata.cross_query_start_loc.append(len(token_ids))
            metadata.cross_seq_lens.append(group.num_encoder_tokens)
            metadata.cross_block_tables.append(group.cross_block_table)
            if group.runs_encoder:
                metadata.prefills.append(index)
        metadata.query_start_loc = [0, *accumulate(query_lens)]
        input_ids, positions_of_all, metadata.slot_mapping = upload((token_ids, positions, slots), self.device).unbind()
        put_pending(input_ids, pending, last)
        return input_ids, positions_of_all, metadata

    def _num_behind(self, num_tokens: int) -> int:
        """The first tokens of a sequence that decodes whose blocks have been given back."""
        return num_blocks_behind(num_tokens, self.window, self.block_size) * self.block_size

    def _last_rows(self, hidden: Tensor, metadata: AttentionMetadata) -> Tensor:
        """Of [num_tokens, hidden], each sequence's last row."""
        starts = metadata.query_start_loc
        return hidden if len(starts) == len(hidden) + 1 else hidden[self._tensor(starts[1:]) - 1]

    def _tensor(self, values: list[int]) -> Tensor:
        return upload(values, self.device)


def _interruption(error: Exception) -> BaseException | None:
    """The interruption of a logits processor's that stands behind an error."""
    interruption = error.interruption if isinstance(error, ProcessorInterruptedError) else None
    return interruption if interruption is not None and is_interruption(interruption) else None


def _tokens_are_known(group: SequenceGroupMetadata, drawn: Collection[int]) -> bool:
    """Whether the device has the tokens that the host awaits. drawn: sequences for which the last step drew one.

    It has none for a request that failed in that step, which the host learns when it collects it.
    """
    return all(data.last_token_id != PENDING or seq_id in drawn for seq_id, data in group.seq_data.items())


def _sampling_rows(step: Sequence[SequenceGroupMetadata]) -> list[SamplingRow]:
    return [
        SamplingRow(seq_id, data, group.sampling_params, group.num_samples)
        for group in step
        for seq_id, data in group.seq_data.items()
    ]


def _check_encoded(encode: str, batch: list[EncoderInputs], hidden: Any) -> None:
    """Raise PluginError where `encode` did not return a row for each of these inputs' tokens."""
    expected = sum(inputs.num_tokens for inputs in batch)
    if not isinstance(hidden, Tensor) or hidden.dim() != 2:
        returned = [*hidden.shape] if isinstance(hidden, Tensor) else type(hidden).__name__
        raise PluginError(f"{encode} returned {returned}; it must return a tensor [encoder tokens, hidden size]")
    if len(hidden) != expected:
        raise _unlike_declared(encode, batch, len(hidden))


def _unlike_declared(encode: str, batch: list[EncoderInputs], rows: int) -> PluginError:
    """An error for an `encode` that makes as many rows of these inputs."""
    expected = sum(inputs.num_tokens for inputs in batch)
    mappers = sorted({inputs.mapper or "the prompt's token ids" for inputs in batch})
    lengths = ", ".join(str(inputs.num_tokens) for inputs in batch)
    return PluginError(
        f"{encode} returned {rows} rows, but {' and '.join(mappers)} declared {expected} encoder tokens "
        f"(num_tokens={lengths}): correct one of the two"
    )


def _check_shape(method: str, returned: Any, rows: int, width: int | None) -> None:
    """Raise PluginError for what is no tensor [rows, width]. width: None for any."""
    if not isinstance(returned, Tensor):
        raise PluginError(f"{method} returned {type(returned).__name__}; it must return a tensor")
    if returned.dim() != 2 or len(returned) != rows or width not in (None, returned.shape[1]):
        wanted = f"[{rows}, {'hidden size' if width is None else width}]"
        raise PluginError(f"{method} returned {[*returned.shape]}; it must return {wanted}")


def _chunks(batch: list[EncoderInputs], limit: int | None) -> list[list[EncoderInputs]]:
    """Neighbours that the encoder takes together: of one kind (the same features, text or none) and `limit` tokens."""
    chunks: list[list[EncoderInputs]] = []
    size = 0
    for inputs in batch:
        alike = chunks and _kind(chunks[-1][0]) == _kind(inputs)
        if alike and (limit is None or size + inputs.num_tokens <= limit):
            chunks[-1].append(inputs)
            size += inputs.num_tokens
        else:
            chunks.append([inputs])
            size = inputs.num_tokens
    return chunks


def _kind(inputs: EncoderInputs) -> tuple[set[str], bool]:
    """What `encode` is given of it: keywords, and whether token ids."""
    return {*inputs.features}, bool(inputs.token_ids)
