"""EncoderRunner: encodes inputs, and writes the keys and values of each layer's cross-attention into the cache.

The model runner calls it before the decoder, whose rows all read keys and values that are already written. The output
of a request that only encodes is pooled instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor

from transept.core.attention.metadata import AttentionMetadata, slots_of
from transept.core.execution.checked_model import CheckedModel
from transept.core.execution.embeddings import pooled
from transept.core.execution.encoder_graphs import EncoderGraphs
from transept.core.execution.heap_trim import trimmed_heap
from transept.core.execution.kv_cache import KVCache
from transept.core.execution.model_adapters import ModelAdapters
from transept.core.execution.recorder import Recorder
from transept.core.kernels.transfer import to_device, upload
from transept.core.layers.adapters import using
from transept.core.layers.projected_attention import MakesKeysAndValues
from transept.core.request.inputs import EncoderInputs
from transept.core.scheduling.step import Encode

# Encoder tokens computed at a time on a CPU. Their activations (about 10 MB a layer for Whisper tiny) fit into the last
# cache level, where a layer runs a third faster than on 12,000 tokens. Longer sequences run alone.
CPU_ENCODER_CHUNK = 2048
# In a pipeline, stages work on different chunks of a step: with more chunks, stages idle for less time.
CHUNKS_A_STAGE = 2
SMALLEST_CHUNK = 256  # tokens; a layer takes as long for a smaller chunk


class EncoderRunner:
    """Encodes inputs in chunks, and writes every layer's keys and values of a chunk before it encodes the next.

    cross_attentions: one for each decoder layer that has a cache here, in order; None for a layer without
    cross-attention. graphs: CUDA graphs of encoder passes; None: every pass is launched kernel by kernel.
    """

    graphs: EncoderGraphs | None = None

    def __init__(
        self,
        model: CheckedModel,
        cross_attentions: Sequence[MakesKeysAndValues | None],
        cache: KVCache,
        block_size: int,
        adapters: ModelAdapters,
    ) -> None:
        context = model.model.context
        self.backend, self.stage = context.attention_backend, context.stage
        self._model, self._cache, self._block_size, self._adapters = model, cache, block_size, adapters
        self._device, self._dtype = cache.layers[0].device, model.model.compute_dtype
        layers = zip(cross_attentions, cache.layers, strict=True)
        self._layers = [(attention, kv_cache) for attention, kv_cache in layers if attention is not None]
        self._has_encoded = False

    def record(self, recorder: Recorder) -> None:
        """Replay recurring passes as CUDA graphs, if the attention backend can replay encoders."""
        if self.backend.replays_encoders and self._layers:
            self.graphs = EncoderGraphs(self._model.model, self._layers, recorder, self._features_of)

    def also_write(self, cross_attentions: Sequence[MakesKeysAndValues | None], layers: Sequence[Tensor]) -> None:
        """Also write keys and values of these layers, which are a draft model's, with the same block tables.

        Called before `record`.
        """
        pairs = zip(cross_attentions, layers, strict=True)
        self._layers += [(attention, kv_cache) for attention, kv_cache in pairs if attention is not None]

    def __call__(self, encodes: Sequence[Encode], embeddings: dict[int, Tensor]) -> None:
        """Encode inputs and write their keys and values. Raises the model's errors.

        embeddings: receives the results of encodes with pooling, on the device, by encode id.

        In a pipeline, the last stage computes the encoder's output. It sends each chunk to the other stages as soon as
        it is encoded. The others receive the chunks after they have computed their own layers for all chunks.
        """
        if not encodes:
            return
        with nullcontext() if self._has_encoded else trimmed_heap():
            self._has_encoded = True
            self._cache.wait()
            replays = self.graphs is not None and all(each.pooling is None and each.adapter is None for each in encodes)
            if replays and self.graphs([each.inputs for each in encodes], self._slots(encodes)):  # type: ignore[misc]
                return
            chunks = _chunks(encodes, self._chunk_size(encodes))
            for chunk in chunks:
                hidden = self.encode([each.inputs for each in chunk], chunk[0].adapter)
                if self.stage.is_last:
                    self.stage.share_encoded(hidden)
                    self.end(hidden, chunk, embeddings)
            if not self.stage.is_last:
                for chunk in chunks:
                    self.write(self.stage.receive_encoded(self._device), chunk)

    def encode(self, batch: Sequence[EncoderInputs], adapter: int | None = None) -> Tensor:
        """Return the encoder's output for inputs of one kind, [encoder tokens, hidden]. Writes nothing.

        adapter: slot of the adapter of all of them.
        """
        metadata = AttentionMetadata.for_encoder([inputs.num_tokens for inputs in batch])
        self.backend.plan(metadata)
        input_ids = positions = None
        if batch[0].token_ids:
            input_ids = upload([token for inputs in batch for token in inputs.token_ids], self._device)
            places = [position for inputs in batch for position in range(len(inputs.token_ids))]
            positions = upload(places, self._device)
        features = self._features_of(batch)
        with self._model.encoding(batch, metadata), using(self._adapters.all_rows(adapter)):
            hidden = self._model.model.encode(input_ids, positions, metadata, **features)
        self._model.check_encoded(batch, hidden)
        return hidden

    def end(self, hidden: Tensor, chunk: Sequence[Encode], embeddings: dict[int, Tensor]) -> None:
        """Pool or write a chunk's encoder output, [encoder tokens, hidden]. embeddings: see `__call__`."""
        rows = hidden.split([each.inputs.num_tokens for each in chunk])
        embeddings |= {
            each.encode_id: pooled(own, each.pooling)
            for each, own in zip(chunk, rows, strict=True)
            if each.pooling is not None
        }
        self.write(hidden, chunk)

    def write(self, hidden: Tensor, chunk: Sequence[Encode]) -> None:
        """Write each layer's keys and values of a chunk's encoder output, except of encodes with pooling."""
        if any(each.pooling is not None for each in chunk):
            rows = hidden.split([each.inputs.num_tokens for each in chunk])
            written = [index for index, each in enumerate(chunk) if each.pooling is None]
            if not written:
                return
            hidden, chunk = torch.cat([rows[index] for index in written]), [chunk[index] for index in written]
        self._cache.wait()
        slots = upload(np.concatenate(self._slots(chunk)), self._device)
        with using(self._adapters.all_rows(chunk[0].adapter)):
            for attention, kv_cache in self._layers:
                self.backend.write(*self._model.keys_and_values(attention, hidden, kv_cache), kv_cache, slots)

    def _slots(self, encodes: Sequence[Encode]) -> list[np.ndarray]:
        """Return the cache slots for each input's keys and values, int64 [its tokens]."""
        return [slots_of(each.cross_block_table, each.inputs.num_tokens, self._block_size) for each in encodes]

    def _features_of(self, batch: Sequence[EncoderInputs]) -> dict[str, list[Tensor]]:
        """Return the features of inputs of one kind, on the device, by keyword."""
        return {name: self._on_device([inputs.features[name] for inputs in batch]) for name in batch[0].features}

    def _on_device(self, features: list[Tensor]) -> list[Tensor]:
        """Copy features to the device and cast floats to the model's dtype, in one operation if all shapes agree."""
        features, dtype = [to_device(each, self._device) for each in features], self._dtype
        if all(each.dtype is dtype or not each.is_floating_point() for each in features):
            return features
        if len({(each.shape, each.dtype) for each in features}) == 1:
            return [*torch.stack(features).to(dtype).unbind()]
        return [each.to(dtype) if each.is_floating_point() else each for each in features]

    def _chunk_size(self, encodes: Sequence[Encode]) -> int | None:
        """Return the maximum number of tokens in a chunk; None: no limit. An input that is longer is a chunk."""
        limit = CPU_ENCODER_CHUNK if self._device.type == "cpu" else None
        if self.stage.count == 1:
            return limit
        total = sum(each.inputs.num_tokens for each in encodes)
        share = max(-(-total // (CHUNKS_A_STAGE * self.stage.count)), SMALLEST_CHUNK)
        return share if limit is None else min(limit, share)


def _chunks(encodes: Sequence[Encode], limit: int | None) -> list[list[Encode]]:
    """Order encodes by adapters, and split them into chunks of one `_kind`, at most `limit` tokens each.

    A longer input is a separate chunk.
    """
    chunks: list[list[Encode]] = []
    size = 0
    for encode in sorted(encodes, key=lambda each: -1 if each.adapter is None else each.adapter):
        alike = chunks and _kind(chunks[-1][0]) == _kind(encode)
        if alike and (limit is None or size + encode.inputs.num_tokens <= limit):
            chunks[-1].append(encode)
            size += encode.inputs.num_tokens
        else:
            chunks.append([encode])
            size = encode.inputs.num_tokens
    return chunks


def _kind(encode: Encode) -> tuple[set[str], bool, int | None]:
    """Return the names of its features, True if it has token ids, and its adapter. Equal inputs share a chunk."""
    return {*encode.inputs.features}, bool(encode.inputs.token_ids), encode.adapter
