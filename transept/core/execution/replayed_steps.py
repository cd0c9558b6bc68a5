"""What of a step a GPU replays: requests that decode, and new ones as far as graphs can compute them.

A new request's encoder runs first, and what the decoder's layers keep of its output is written into the cache; then
each token of a short prompt is a row of the recorded step, as if it were a sequence's newest: the keys of all rows are
written before any are read. What else is new is computed kernel after kernel, as without graphs. Used by
`transept.core.execution.model_runner`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from torch import Tensor

from transept.core.attention.cross_projections import CrossProjections, Project
from transept.core.attention.metadata import AttentionMetadata
from transept.core.execution.decode_graphs import DecodeGraphs, DecodeRows
from transept.core.execution.encoder_graphs import EncoderGraphs
from transept.core.execution.kv_cache import KVCache
from transept.core.execution.sampler import Drawn
from transept.core.model import ForConditionalGeneration
from transept.core.request.inputs import EncoderInputs
from transept.core.scheduling.step import PENDING, SequenceGroupMetadata, num_blocks_behind
from transept.core.transfer import upload

MOST_PROMPT_ROWS = 8  # of a new request; with more, tiles of its queries read its keys less often


class ReplayedSteps:
    """Computes logits of requests by graphs.

    encode: inputs -> the encoder's output, kernel after kernel. features_of: inputs of one kind -> keyword -> features
    of each, on the device.
    """

    def __init__(
        self,
        model: ForConditionalGeneration,
        cache: KVCache,
        block_size: int,
        graphs: DecodeGraphs,
        encode: Callable[[list[EncoderInputs]], Tensor],
        features_of: Callable[[list[EncoderInputs]], dict[str, list[Tensor]]],
    ) -> None:
        self.backend, self.cache, self.graphs = model.context.attention_backend, cache, graphs
        self.block_size = block_size
        self.window = model.shape(model.config).window
        self._model, self._encode, self._features_of = model, encode, features_of
        self._projections: list[tuple[Project, Tensor]] | None = None  # None until a step with an encoder was seen
        self._encoder_graphs: EncoderGraphs | None = None

    def part(self, step: Sequence[SequenceGroupMetadata]) -> list[SequenceGroupMetadata]:
        """The requests that can be replayed, before the others are computed."""
        apart = [group.cross_block_table for group in step if group.runs_encoder and not self._takes(group)]
        return [
            group
            for group in step
            if self._takes(group) and not (group.is_prefill and group.cross_block_table in apart)  # not written yet
        ]

    def _takes(self, group: SequenceGroupMetadata) -> bool:
        if not group.is_prefill:
            return True
        if self.graphs.failed_shapes or group.sampling_params.prompt_probe is not None:
            return False
        if group.runs_encoder and not self._projections:
            return False
        return sum(data.num_tokens for data in group.seq_data.values()) <= MOST_PROMPT_ROWS

    def __call__(self, step: Sequence[SequenceGroupMetadata], last: Drawn | None) -> Tensor | None:
        """Logits, [sequences, vocabulary], of which the next call may make something else.

        last: of the step before, where tokens are pending. None where a step of this shape cannot be recorded.
        """
        self.cache.wait()
        encoded = [group for group in step if group.runs_encoder]
        if encoded:
            self._write_encoded(encoded)
        rows = self._rows(step)
        logits = self.graphs(rows, last)
        if logits is None or len(rows.ends) == len(rows.token_ids):
            return logits
        return logits[upload(rows.ends, logits.device)]

    def watch(self, metadata: AttentionMetadata, encoder_hidden: Tensor | None) -> None:
        """Let the decoder's layers tell what they make of an encoder's output, unless that is known."""
        if self._projections is None and encoder_hidden is not None:
            metadata.cross_projections = CrossProjections(encoder_hidden)

    def learn(self, metadata: AttentionMetadata) -> None:
        """Keep what they told."""
        if metadata.cross_projections is not None:
            self._projections = metadata.cross_projections.of_layers(self.cache.layers)
            if self._projections:
                self._encoder_graphs = EncoderGraphs(
                    self._model, self._projections, self.graphs.recorder, self._features_of
                )

    def _write_encoded(self, step: Sequence[SequenceGroupMetadata]) -> None:
        """Encode requests' inputs, and write what the decoder's layers keep of them."""
        assert self._projections
        assert self._encoder_graphs is not None
        inputs = [group.encoder_inputs for group in step if group.encoder_inputs is not None]
        tables = [group.cross_block_table for group in step]
        slots = [self._slots(table, given.num_tokens) for table, given in zip(tables, inputs, strict=True)]
        if self._encoder_graphs(inputs, slots):
            return
        hidden = self._encode(inputs)
        metadata = AttentionMetadata(
            self.block_size,
            cross_seq_lens=[each.num_tokens for each in inputs],
            cross_block_tables=tables,
            prefills=[*range(len(step))],
        )
        self.backend.plan(metadata)
        for project, kv_cache in self._projections:
            self.backend.project_cross(hidden, project, kv_cache, metadata)

    def _slots(self, table: list[int], num_tokens: int) -> np.ndarray:
        """Where a table's first tokens lie in the cache, int64."""
        places = np.arange(num_tokens)
        return np.asarray(table, np.int64)[places // self.block_size] * self.block_size + places % self.block_size

    def _rows(self, step: Sequence[SequenceGroupMetadata]) -> DecodeRows:
        rows = DecodeRows([], [], [], [], [], [], {}, [])
        for group in step:
            cross_length, cross_table = group.num_encoder_tokens, group.cross_block_table
            for seq_id, data in group.seq_data.items():
                length, table = data.num_tokens, group.block_tables[seq_id]
                if group.is_prefill:
                    count, behind = length, 0
                    rows.token_ids.extend(data.token_ids)
                else:  # behind: the first tokens, whose blocks have been given back
                    count, behind = 1, num_blocks_behind(length, self.window, self.block_size) * self.block_size
                    if data.last_token_id == PENDING:
                        rows.pending[len(rows.token_ids)] = seq_id
                    rows.token_ids.append(data.last_token_id)
                for place in range(length - count, length):
                    rows.positions.append(place)
                    rows.lengths.append(place + 1 - behind)
                    rows.block_tables.append(table)
                    rows.cross_lengths.append(cross_length)
                    rows.cross_block_tables.append(cross_table)
                rows.ends.append(len(rows.token_ids) - 1)
        return rows
