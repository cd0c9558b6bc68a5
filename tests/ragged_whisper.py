"""The small random Whisper with windows of any length, which its own mapper would fill up to one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from transept import Engine
from transept.multimodal.mapping import MappedInput
from transept.plugins.whisper.model import WhisperForConditionalGeneration
from transept.registry.checkpoint_view import CheckpointView


class RaggedWhisper(WhisperForConditionalGeneration):
    """Each window has as many positions as its frames take."""

    def encode(self, input_ids: None, positions: None, metadata: Any, **features: list[Tensor]) -> Tensor:
        encoder, parts = self.encoder, []
        for window in features["input_features"]:
            part = encoder.conv2(encoder.conv1(window.T[None]))[0]
            parts.append(part + encoder.embed_positions[: len(part)])
        x = torch.cat(parts)
        for layer in encoder.layers:
            x = layer(x, metadata)
        return encoder.layer_norm(x)


def map_frames(frames: Tensor, view: CheckpointView) -> MappedInput:
    """frames: [mels, frames]."""
    return MappedInput({"input_features": frames}, num_tokens=frames.shape[1] // 2)


def ragged_engine(directory: Path, mapper: Any = map_frames, **options: Any) -> Engine:
    """An engine of it, for a checkpoint by `save_random_whisper`."""
    engine = Engine(directory, **{"kv_cache_bytes": 1 << 24, **options})
    engine.executor.worker.runner.model.__class__ = RaggedWhisper
    preprocess = engine.preprocess
    preprocess.spec = replace(preprocess.spec, input_mappers={"audio_features": mapper})
    return engine


def frames_of(count: int, seed: int = 0) -> Tensor:
    """Random features of a window, float32 [80, count]."""
    return torch.randn(80, count, generator=torch.Generator().manual_seed(seed))
