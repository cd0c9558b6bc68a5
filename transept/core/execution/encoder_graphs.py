"""Encoder passes as CUDA graphs, including the write of cross-attention keys and values into the cache.

A pass over one window of audio, or one text, is hundreds of kernels, which a GPU computes faster than Python can launch
them. A graph replays the encoder, and then computes each decoder layer's keys and values of the encoder's output. Its
input is copied into static tensors first. Each shape of features has a graph. Texts of an encoder that is marked
`replayable` are padded to one of a few numbers of tokens by one extra sequence, whose keys and values go to the cache's
spare block. Used by `transept.core.execution.encoder_runner`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from transept.core.attention.metadata import AttentionMetadata, EncodeTables
from transept.core.execution.recorder import Recorder
from transept.core.kernels.dispatch import QUERIES
from transept.core.kernels.transfer import upload
from transept.core.layers.projected_attention import MakesKeysAndValues
from transept.core.model import ForConditionalGeneration
from transept.core.request.inputs import EncoderInputs

logger = logging.getLogger(__name__)

MOST_INPUTS = 4  # with features; for more, computing takes longer than launching, so a graph saves nothing
MOST_TEXTS, MOST_TEXT_TOKENS = 16, 2048  # the same limit for texts
MOST_PASSES, MOST_SHAPES_SEEN = 32, 4096
BEYOND = 1 << 30  # first query of an unused tile: beyond the end of any sequence

PassShape = tuple[object, ...]


class EncoderGraphs:
    """CUDA graphs of encoder passes, by shape. A shape is recorded when it occurs for the second time.

    layers: each decoder layer's cross-attention and cache. features_of: inputs of one kind -> keyword -> each input's
    features, on the device. spare_slot: the last slot of the cache, which is in its spare block. The model's attention
    backend must have `replays_encoders`.
    """

    def __init__(
        self,
        model: ForConditionalGeneration,
        layers: list[tuple[MakesKeysAndValues, Tensor]],
        recorder: Recorder,
        features_of: Callable[[Sequence[EncoderInputs]], dict[str, list[Tensor]]],
    ) -> None:
        self.model, self.features_of = model, features_of
        self._layers, self._recorder = layers, recorder
        cache = layers[0][1]
        self.device, self.spare_slot = cache.device, cache.shape[1] * cache.shape[2] - 1
        self._seen: Counter[PassShape] = Counter()
        self._recordings: dict[PassShape, _Features | _Texts | None] = {}  # None: it cannot be recorded

    def __call__(self, inputs: list[EncoderInputs], slots: list[np.ndarray]) -> bool:
        """Encode inputs into cache slots, int64 [tokens] for each. Returns False if no graph serves these inputs."""
        shape = self._shape(inputs)
        if shape is None:
            return False
        if len(self._seen) == MOST_SHAPES_SEEN:
            self._seen.clear()
        self._seen[shape] += 1
        if shape not in self._recordings:
            if self._seen[shape] < 2 or len(self._recordings) == MOST_PASSES:
                return False
            self.record(inputs)
        recording = self._recordings[shape]
        if recording is None:
            return False
        recording(inputs, slots)
        return True

    def record(self, inputs: list[EncoderInputs]) -> _Features | _Texts | None:
        """Record a pass over inputs. Returns the recording; None if such inputs cannot be recorded."""
        if (shape := self._shape(inputs)) is not None:
            self._recordings[shape] = self._record(inputs)
        return None if shape is None else self._recordings[shape]

    def _shape(self, inputs: list[EncoderInputs]) -> PassShape | None:
        """Return the shape by which recordings are found; None if such inputs cannot be recorded."""
        num_tokens = [given.num_tokens for given in inputs]
        if all(given.features and not given.token_ids for given in inputs):
            shapes = {
                tuple((name, each.shape, each.dtype) for name, each in given.features.items()) for given in inputs
            }
            return (*num_tokens, *shapes) if len(inputs) <= MOST_INPUTS and len(shapes) == 1 else None
        texts = all(given.token_ids and not given.features for given in inputs)
        if not texts or "encode" in vars(self.model) or not hasattr(type(self.model).encode, "is_replayable"):
            return None
        total = sum(num_tokens)
        return (num_tokens_recorded(total),) if len(inputs) <= MOST_TEXTS and total <= MOST_TEXT_TOKENS else None

    def _record(self, inputs: list[EncoderInputs]) -> _Features | _Texts | None:
        num_tokens = sum(given.num_tokens for given in inputs)
        try:
            return _Features(self, inputs) if inputs[0].features else _Texts(self, num_tokens_recorded(num_tokens))
        except Exception as error:  # from a plugin's encode, or from CUDA's capture
            logger.warning(
                "%s encodes %d tokens without CUDA graphs, which is slower: %s: %s",
                *(type(self.model).__name__, num_tokens, type(error).__name__, error),
            )
            return None

    def record_pass(
        self, encode: Callable[[], Tensor], slots: Tensor
    ) -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
        """Record `encode` and the write of each layer's keys and values. slots: for each row of the encoder's output.

        Returns the replay and the recorded step. The step keeps alive the tensors that a CUDA graph reads but does not
        own. A step's result stays allocated, so the step returns the slots, not the encoder's output.
        """
        layers, backend = self._layers, self.model.context.attention_backend

        def step() -> Tensor:
            hidden = encode()
            if hidden.dim() != 2 or len(hidden) != len(slots):
                raise ValueError(f"encode returned {[*hidden.shape]} for {len(slots)} tokens")
            rows = slots.long()
            for attention, kv_cache in layers:
                backend.write(*attention.keys_and_values(hidden), kv_cache, rows)
            return slots

        return self._recorder(step), step


class _Features:
    """A recording for inputs whose features have the same shapes as these."""

    def __init__(self, graphs: EncoderGraphs, inputs: list[EncoderInputs]) -> None:
        model, self.features_of = graphs.model, graphs.features_of
        self.features = features = {name: torch.stack(given) for name, given in self.features_of(inputs).items()}
        metadata = AttentionMetadata.for_encoder([given.num_tokens for given in inputs])
        model.context.attention_backend.plan(metadata)
        self.slots = torch.full((metadata.encoder_start_loc[-1],), graphs.spare_slot, device=graphs.device)

        def encode() -> Tensor:
            return model.encode(None, None, metadata, **{name: [*each.unbind()] for name, each in features.items()})

        self.replay, self.step = graphs.record_pass(encode, self.slots)

    def __call__(self, inputs: list[EncoderInputs], slots: list[np.ndarray]) -> None:
        """See EncoderGraphs."""
        for name, given in self.features_of(inputs).items():
            for target, each in zip(self.features[name], given, strict=True):
                target.copy_(each)
        self.slots.copy_(upload(np.concatenate(slots), self.slots.device))
        self.replay()


class _Texts:
    """A recording for texts with at most `num_tokens` tokens in total, padded by one extra sequence."""

    def __init__(self, graphs: EncoderGraphs, num_tokens: int) -> None:
        model, self.num_tokens, self.spare_slot = graphs.model, num_tokens, graphs.spare_slot
        num_tiles = num_tokens // QUERIES + MOST_TEXTS + 1  # the maximum for any lengths of the texts
        sizes = [num_tokens, num_tokens, num_tokens, MOST_TEXTS + 2, MOST_TEXTS + 1, 2 * num_tiles]
        self.host = np.zeros(sum(sizes), np.int32)
        self.numbers = torch.zeros(sum(sizes), dtype=torch.int32, device=graphs.device)
        self.columns = np.split(self.host, np.cumsum(sizes)[:-1])
        ids, positions, slots, starts, lengths, tiles = self.numbers.split(sizes)
        metadata = AttentionMetadata.recorded(1, num_tokens)
        model.context.attention_backend.plan_encode(metadata, EncodeTables(starts, lengths, tiles.view(-1, 2)))
        self._write([], [])
        self.replay, self.step = graphs.record_pass(lambda: model.encode(ids.long(), positions.long(), metadata), slots)

    def __call__(self, inputs: list[EncoderInputs], slots: list[np.ndarray]) -> None:
        """See EncoderGraphs."""
        self._write([given.token_ids for given in inputs], slots)
        self.replay()

    def _write(self, texts: list[list[int]], slots: list[np.ndarray]) -> None:
        """Write the texts' numbers into the buffer, pad it, and copy it to the device."""
        ids, positions, into, starts, lengths, tiles = self.columns
        used, rows = sum(map(len, texts)), []
        ids[used:], positions[used:], into[used:] = 0, 0, self.spare_slot
        lengths[:] = [*map(len, texts), self.num_tokens - used, *[0] * (MOST_TEXTS - len(texts))]
        starts[0], starts[1:] = 0, np.cumsum(lengths)
        for index, length in enumerate(lengths.tolist()):
            begin = int(starts[index])
            if index < len(texts):
                places = slice(begin, begin + length)
                ids[places], positions[places], into[places] = texts[index], np.arange(length), slots[index]
            rows += [(index, first) for first in range(0, length, QUERIES)]
        rows += [(MOST_TEXTS, BEYOND)] * (len(tiles) // 2 - len(rows))
        tiles[:] = np.asarray(rows).ravel()
        self.numbers.copy_(upload(self.host, self.numbers.device, torch.int32))


def most_passes(inputs: EncoderInputs) -> int:
    """Return the maximum number of recordings for inputs of this kind."""
    if inputs.features:
        return MOST_PASSES
    return len({num_tokens_recorded(count + 1) for count in range(MOST_TEXT_TOKENS)})


def num_tokens_recorded(count: int) -> int:
    """Return the number of tokens to which `count` tokens are padded. Adds at most 63 tokens or an eighth."""
    step = max(QUERIES, (1 << (count - 1).bit_length()) // 16)
    return -(-count // step) * step
