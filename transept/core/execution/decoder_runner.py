"""DecoderRunner: computes the logits of a step's requests, whose cross-attention keys are already in the cache.

Steps are launched kernel by kernel, or replayed as CUDA graphs, except for requests with adapters. In a recorded step,
and on a CPU, each token of a short prompt is computed like the newest token of a decoding sequence. That is correct
because the keys of all rows are written before any are read. So the CPU kernel that computes whole layers also serves
steps with new requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from transept.core.attention.metadata import AttentionMetadata
from transept.core.execution.checked_model import CheckedModel
from transept.core.execution.decode_graphs import DecodeGraphs
from transept.core.execution.drawn import Drawn
from transept.core.execution.kv_cache import KVCache
from transept.core.execution.model_adapters import ModelAdapters
from transept.core.execution.prompt_probes import PromptProbes
from transept.core.execution.recorder import Recorder
from transept.core.execution.rows import DecodeRows, put_pending
from transept.core.kernels.dispatch import MOST_QUERIES
from transept.core.kernels.transfer import upload
from transept.core.layers.adapters import using
from transept.core.scheduling.step import SequenceGroupMetadata

MOST_PROMPT_ROWS = 8  # prompt tokens of a new request on a GPU; for longer prompts, tiled attention is faster
ROWS_OF_FEW = 32  # in larger steps, at most 1.5 rows for each sequence: each row's logits are computed


class Decoded(NamedTuple):
    """Requests that were computed together.

    logits: [sampled rows, vocabulary], which the next computation may overwrite. probes: None if the step was replayed.
    """

    groups: Sequence[SequenceGroupMetadata]
    logits: Tensor
    probes: PromptProbes | None


class DecoderRunner:
    """Runs a model's decoder. graphs: steps that a GPU replays; None: every step is launched kernel by kernel."""

    graphs: DecodeGraphs | None = None

    def __init__(self, model: CheckedModel, cache: KVCache, block_size: int, adapters: ModelAdapters) -> None:
        context, self.shape = model.model.context, model.model.shape(model.model.config)
        self.backend, self.ranks, self.stage = context.attention_backend, context.group, context.stage
        self._model, self._cache, self._block_size, self._adapters = model, cache, block_size, adapters
        self._device = cache.layers[0].device
        self.most_spans = MOST_QUERIES if self._device.type == "cpu" else 0  # limit for a new request without graphs
        own, layers = self.stage.decoder_layers(self.shape), cache.layers
        elsewhere = layers[0].new_empty(2, 0, *layers[0].shape[2:])  # for layers of other stages
        all_layers = range(self.shape.num_decoder_layers)
        self.kv_caches = [layers[layer - own.start] if layer in own else elsewhere for layer in all_layers]

    def record(self, recorder: Recorder) -> None:
        """Replay steps of a few shapes."""
        self.graphs = DecodeGraphs(self._model.model, self._cache, self._block_size, recorder)

    def replay(self, step: Sequence[SequenceGroupMetadata], last: Drawn | None) -> Decoded | None:
        """Compute the requests that a recorded step serves. Returns None without such requests or recordings.

        last: the draws of the previous step, if tokens are pending.
        """
        if self.graphs is None or not (replayable := self._replayable(step)):
            return None
        self._cache.wait()
        rows = DecodeRows.of(replayable, self._block_size, self.shape.window, most_spans=MOST_PROMPT_ROWS)
        logits = self.graphs(rows, last)
        return None if logits is None else Decoded(replayable, self._sampled(rows, logits), None)

    def launch(self, step: Sequence[SequenceGroupMetadata], last: Drawn | None) -> Decoded | None:
        """Compute requests kernel by kernel. Returns None except in the last pipeline stage. last: see `replay`."""
        self._cache.wait()
        rows = DecodeRows.of(step, self._block_size, self.shape.window, self.most_spans)
        adapters = self._adapters.rows(rows.adapters)
        input_ids, positions, metadata = self._planned(rows)
        put_pending(input_ids, rows.pending, last)
        probes = PromptProbes(step, metadata, self.kv_caches, self.ranks, self.stage)
        with using(adapters):
            hidden = self._model.decode(input_ids, positions, self.kv_caches, metadata)
        if not self.stage.is_last:
            probes.send(hidden)
            return None
        with using(None if adapters is None else adapters.selected(rows.sampled)):
            logits = self._model.compute_logits(self._sampled(rows, hidden))
        probes.read(hidden, self._model.compute_logits)
        return Decoded(step, logits, probes)

    def logits(self, rows: DecodeRows) -> Tensor:
        """Compute rows without adapters, probes and pending tokens. Returns [sampled rows, vocabulary].

        The next computation may overwrite them.
        """
        self._cache.wait()
        if self.graphs is not None and (replayed := self.graphs(rows, None)) is not None:
            return self._sampled(rows, replayed)
        input_ids, positions, metadata = self._planned(rows)
        hidden = self._model.decode(input_ids, positions, self.kv_caches, metadata)
        return self._model.compute_logits(self._sampled(rows, hidden))

    def _planned(self, rows: DecodeRows) -> tuple[Tensor, Tensor, AttentionMetadata]:
        """Return token ids and positions on the device, and the attention metadata of an eager step."""
        input_ids, positions, slots = upload((rows.token_ids, rows.positions, rows.slots), self._device).unbind()
        metadata = rows.metadata(self._block_size, self.shape.window, slots)
        self.backend.plan(metadata)
        return input_ids, positions, metadata

    def _replayable(self, step: Sequence[SequenceGroupMetadata]) -> list[SequenceGroupMetadata]:
        """Return the requests that may be rows of a recorded step."""
        num_seqs = sum(len(group.seq_data) for group in step)
        room = most_rows(num_seqs) - sum(group.num_rows for group in step if not group.is_prefill)
        chosen: list[SequenceGroupMetadata] = []
        for group in step:
            if group.adapter is not None:
                continue
            if group.is_prefill:
                if group.num_rows > min(room, MOST_PROMPT_ROWS) or group.sampling_params.prompt_probe is not None:
                    continue
                room -= group.num_rows
            chosen.append(group)
        return chosen

    def _sampled(self, rows: DecodeRows, of_rows: Tensor) -> Tensor:
        """Select the rows whose logits are needed from a tensor [rows, ...]."""
        return of_rows if len(rows.sampled) == len(of_rows) else of_rows[upload(rows.sampled, self._device)]


def most_rows(num_seqs: int) -> int:
    """Return the maximum number of rows of a recorded step of `num_seqs` sequences."""
    return max(ROWS_OF_FEW, num_seqs * 3 // 2)
