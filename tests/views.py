"""The CheckpointView of a checkpoint that is not in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transept.registry.checkpoint_view import CheckpointView


def view_of(config: Any, tokenizer: Any = None, generation_config: Any = None, path: Path = Path()) -> CheckpointView:
    """What a plugin's functions are given of it."""
    return CheckpointView(
        path, config, load_generation_config=lambda: generation_config, load_tokenizer=lambda: tokenizer
    )
