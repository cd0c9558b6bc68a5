"""The CheckpointView of a checkpoint that is not in files, and the preprocessor of its prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transept.core.model_shape import ModelShape
from transept.core.request.limits import DEFAULT_LIMITS, Limits
from transept.core.request.preprocess import InputPreprocessor
from transept.registry.checkpoint_view import CheckpointView
from transept.registry.plugin_calls import tokenizers_of
from transept.registry.spec import ModelSpec


def view_of(config: Any, tokenizer: Any = None, generation_config: Any = None, path: Path = Path()) -> CheckpointView:
    """What a plugin's functions are given of it."""
    return CheckpointView(
        path, config, load_generation_config=lambda: generation_config, load_tokenizer=lambda: tokenizer
    )


def preprocessor_of(
    spec: ModelSpec, view: CheckpointView, limits: Limits = DEFAULT_LIMITS, **shape: Any
) -> InputPreprocessor:
    """shape: fields of a ModelShape; by default its vocabulary is the config's, and positions have no bound."""
    sizes = {"max_source_positions": None, "max_target_positions": None, **shape}
    sizes.setdefault("vocab_size", getattr(view.config, "vocab_size", None))
    return InputPreprocessor(spec, view, ModelShape(1, 1, 1, **sizes), tokenizers_of(spec, view), limits)
