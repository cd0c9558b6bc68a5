"""Encoders of few inputs of one shape, recorded with what the decoder's layers keep of their output.

An encoder pass over one window of sound is hundreds of kernels that a GPU computes in less time than Python takes to
launch them. Here the features are copied to where the last ones were, and what was recorded for as many inputs of that
shape is replayed: the encoder, and every layer's keys and values of its output, which go into the cache. Used by
`transept.core.execution.model_runner`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from transept.core.attention.cross_projections import Project
from transept.core.attention.metadata import AttentionMetadata
from transept.core.execution.decode_graphs import Recorder
from transept.core.model import ForConditionalGeneration
from transept.core.request.inputs import EncoderInputs
from transept.core.transfer import upload

logger = logging.getLogger(__name__)

MOST_INPUTS = 4  # of more a GPU computes for longer than Python launches
MOST_RECORDINGS = 8  # which keep memory

Shape = tuple[tuple[int, ...], tuple[tuple[str, torch.Size, torch.dtype], ...]]  # tokens of each input; features


class EncoderGraphs:
    """The shapes recorded so far. A shape is recorded when it comes for the second time.

    projections: each decoder layer's, and its cache. The model's attention backend must be `replayable`.
    """

    def __init__(
        self, model: ForConditionalGeneration, projections: list[tuple[Project, Tensor]], recorder: Recorder
    ) -> None:
        self.model, self.projections, self._recorder = model, projections, recorder
        self._seen: Counter[Shape] = Counter()
        self._recordings: dict[Shape, _Recording | None] = {}  # None: it cannot be recorded

    def may_serve(self, inputs: list[EncoderInputs]) -> bool:
        """Whether these may be encoded here: few, of features alone, which have one shape."""
        shapes = {tuple((name, each.shape, each.dtype) for name, each in given.features.items()) for given in inputs}
        texts = any(given.token_ids for given in inputs)
        return len(inputs) <= MOST_INPUTS and not texts and len(shapes) == 1 and bool(inputs[0].features)

    def __call__(self, num_tokens: list[int], features: Mapping[str, list[Tensor]], slots: np.ndarray) -> bool:
        """Encode inputs into slots of the cache, int64 [tokens of all]. Returns whether that was done.

        num_tokens: of each input. features: on the device, one tensor an input for each keyword of `encode`.
        """
        shape = tuple(num_tokens), tuple((name, given[0].shape, given[0].dtype) for name, given in features.items())
        self._seen[shape] += 1
        if shape not in self._recordings:
            if self._seen[shape] < 2 or len(self._recordings) == MOST_RECORDINGS:
                return False
            self._recordings[shape] = self._record(num_tokens, features)
        recording = self._recordings[shape]
        if recording is None:
            return False
        recording(features, slots)
        return True

    def _record(self, num_tokens: list[int], features: Mapping[str, list[Tensor]]) -> _Recording | None:
        try:
            return _Recording(self.model, self.projections, self._recorder, num_tokens, features)
        except Exception as error:  # what a plugin's encode, or CUDA about it, raises
            logger.warning(
                "%s encodes %d inputs at a time without CUDA graphs, kernels launched one by one: %s: %s",
                *(type(self.model).__name__, len(num_tokens), type(error).__name__, error),
            )
            return None


class _Recording:
    """Inputs of one shape."""

    def __init__(
        self,
        model: ForConditionalGeneration,
        projections: list[tuple[Project, Tensor]],
        record: Recorder,
        num_tokens: list[int],
        features: Mapping[str, list[Tensor]],
    ) -> None:
        device, backend = projections[0][1].device, model.context.attention_backend
        self.features = {name: torch.stack(given) for name, given in features.items()}
        self.slots = torch.zeros(sum(num_tokens), dtype=torch.int64, device=device)
        of_encoder, of_cache = AttentionMetadata.for_encoder(num_tokens), AttentionMetadata(block_size=1)
        backend.plan(of_encoder)
        backend.plan_writes(of_cache, self.slots)
        spare = projections[0][1].shape[1] * projections[0][1].shape[2] - 1  # the last slot, of the spare block
        self.slots.fill_(spare)

        def step() -> Tensor:
            given = {name: list(stacked.unbind()) for name, stacked in self.features.items()}
            hidden = model.encode(None, None, of_encoder, **given)
            if hidden.shape[0] != sum(num_tokens):
                raise ValueError(f"it returned {len(hidden)} rows for {sum(num_tokens)} tokens")
            for project, kv_cache in projections:
                backend.project_cross(hidden, project, kv_cache, of_cache)
            return hidden

        self.step = step  # kept, with the plans' tensors: what is replayed reads them
        self.replay = record(step)

    def __call__(self, features: Mapping[str, list[Tensor]], slots: np.ndarray) -> None:
        """See EncoderGraphs."""
        for name, stacked in self.features.items():
            for target, given in zip(stacked, features[name], strict=True):
                target.copy_(given)
        self.slots.copy_(upload(slots, self.slots.device))
        self.replay()
