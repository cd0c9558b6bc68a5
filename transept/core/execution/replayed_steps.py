"""What of a step a GPU replays: requests that decode, and new ones as far as graphs can compute them.

New requests' encoders run first, and what the decoder's layers keep of their output is written into the cache; then
each token of a short prompt is a row of the recorded step, as if it were a sequence's newest: the keys of all rows are
written before any are read. Longer prompts are computed kernel after kernel, as without graphs. Used by
`transept.core.execution.model_runner`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from transept.core.attention.cross_projections import CrossProjections, Project
from transept.core.attention.metadata import AttentionMetadata, slots_of
from transept.core.execution.decode_graphs import DecodeGraphs, DecodeRows
from transept.core.execution.encoder_graphs import EncoderGraphs
from transept.core.execution.kv_cache import KVCache
from transept.core.execution.sampler import Drawn
from transept.core.model import ForConditionalGeneration
from transept.core.request.inputs import EncoderInputs
from transept.core.scheduling.step import PENDING, SequenceGroupMetadata, num_blocks_behind
from transept.core.transfer import upload

MOST_PROMPT_ROWS = 8  # of a new request; with more, tiles of its queries read its keys less often
ROWS_OF_FEW = 32  # of a step; beyond, rows are at most half as many again as sequences, since each has logits


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

    def encode(self, step: Sequence[SequenceGroupMetadata]) -> bool:
        """Encode the new requests' inputs, and write what the decoder's layers keep of them.

        Returns whether it was done; if not, the layers are to write it themselves.
        """
        encoding = [group for group in step if group.runs_encoder]
        if not encoding or not self._projections:
            return False
        self.cache.wait()
        self._write_encoded(encoding)
        return True

    def part(self, step: Sequence[SequenceGroupMetadata], encoded: bool) -> list[SequenceGroupMetadata]:
        """The requests that can be replayed, before the others are computed. encoded: what `encode` said."""
        written_later = [] if encoded else [group.cross_block_table for group in step if group.runs_encoder]
        num_seqs = sum(len(group.seq_data) for group in step)
        room = max(ROWS_OF_FEW, num_seqs * 3 // 2) - sum(len(group.seq_data) for group in step if not group.is_prefill)
        chosen: list[SequenceGroupMetadata] = []
        for group in step:
            if group.cross_block_table in written_later:
                continue
            if group.is_prefill:
                num_rows = sum(data.num_tokens for data in group.seq_data.values())
                if num_rows > min(room, MOST_PROMPT_ROWS) or not self._takes(group):
                    continue
                room -= num_rows
            chosen.append(group)
        return chosen

    def _takes(self, group: SequenceGroupMetadata) -> bool:
        """Whether a new request may be replayed: not after a shape could not be, since then its encoder ran in vain."""
        return not self.graphs.failed_shapes and group.sampling_params.prompt_probe is None

    def __call__(self, step: Sequence[SequenceGroupMetadata], last: Drawn | None) -> Tensor | None:
        """Logits, [sequences, vocabulary], of which the next call may make something else.

        last: of the step before, where tokens are pending. None where a step of this shape cannot be recorded.
        """
        self.cache.wait()
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
            learnt = metadata.cross_projections.of_layers(self.cache.layers)
            self._projections = learnt if self.backend.replays_encoders else []
            if self._projections:
                self._encoder_graphs = EncoderGraphs(
                    self._model, self._projections, self.graphs.recorder, self._features_of
                )

    def _write_encoded(self, step: Sequence[SequenceGroupMetadata]) -> None:
        assert self._projections
        assert self._encoder_graphs is not None
        inputs = [group.encoder_inputs for group in step if group.encoder_inputs is not None]
        tables = [group.cross_block_table for group in step]
        slots = [
            slots_of(table, given.num_tokens, self.block_size) for table, given in zip(tables, inputs, strict=True)
        ]
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

    def _rows(self, step: Sequence[SequenceGroupMetadata]) -> DecodeRows:
        rows = DecodeRows([], [], [], [], [], [], {}, [])
        for group in step:
            cross_length, cross_table = group.num_encoder_tokens, group.cross_block_table
            for seq_id, data in group.seq_data.items():
                length, table, count, behind = data.num_tokens, group.block_tables[seq_id], 1, 0
                if group.is_prefill:
                    count = length
                    rows.token_ids.extend(data.token_ids)
                else:
                    if self.window is not None:  # the first tokens, whose blocks have been given back
                        behind = num_blocks_behind(length, self.window, self.block_size) * self.block_size
                    token = data.last_token_id
                    if token == PENDING:
                        rows.pending[len(rows.token_ids)] = seq_id
                    rows.token_ids.append(token)
                for place in range(length - count, length):
                    rows.positions.append(place)
                    rows.lengths.append(place + 1 - behind)
                    rows.block_tables.append(table)
                    rows.cross_lengths.append(cross_length)
                    rows.cross_block_tables.append(cross_table)
                rows.ends.append(len(rows.token_ids) - 1)
        return rows
