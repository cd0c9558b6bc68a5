"""ModelDescription: what a checkpoint and the plugin that runs it say of a model, before any weight is read.

Made by the engine and, from the same path, by each worker.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transept.core.checkpoints.checkpoint import Checkpoint
from transept.core.checkpoints.formats import open_checkpoint
from transept.core.checkpoints.hf_configs import load_config
from transept.core.checkpoints.weight_map import WeightMap
from transept.core.model import ForConditionalGeneration, ModelShape
from transept.errors import CheckpointError
from transept.registry.lookup import find_model
from transept.registry.plugins import discover
from transept.registry.spec import ModelSpec, resolve


@dataclass(frozen=True)
class ModelDescription:
    """config: of transformers, or what the plugin's weight map derives."""

    spec: ModelSpec
    checkpoint: Checkpoint
    weight_map: WeightMap
    config: Any
    model_class: type[ForConditionalGeneration]
    shape: ModelShape


def describe_model(path: Path, source: str, plugin: str | None) -> ModelDescription:
    """Read a checkpoint directory's config and find the plugin that runs it.

    source: what the user called the checkpoint, for messages. plugin: the one to take where several can.
    Raises CheckpointError, UnsupportedModelError, PluginError.
    """
    checkpoint = open_checkpoint(path)
    spec = find_model(discover(), checkpoint.architectures, source, plugin)
    if checkpoint.format not in spec.weight_maps:
        known = ", ".join(sorted(spec.weight_maps)) or "none"
        raise CheckpointError(f'"{path}" is a {checkpoint.format} checkpoint; the "{spec.name}" plugin reads: {known}')
    weight_map: WeightMap = resolve(spec.weight_maps[checkpoint.format])
    config = load_config(checkpoint, weight_map)
    model_class: type[ForConditionalGeneration] = resolve(spec.model_class)
    return ModelDescription(spec, checkpoint, weight_map, config, model_class, model_class.shape(config))
