"""Ids of special tokens, from a checkpoint's generation settings, its config, or a nested config.

So a family whose config.json nests one config in another, under "decoder" or "text_config", copies no ids.
"""

from __future__ import annotations

from typing import Any

from transept.registry.checkpoint_view import CheckpointView

NESTED = ("decoder", "text_config")  # where configs have the decoder's


def decoder_configs(config: Any) -> list[Any]:
    """Return a config, and its nested configs of the decoder."""
    nested = [getattr(config, name, None) for name in NESTED]
    return [config, *(each for each in nested if each is not None and not isinstance(each, str | int | float | bool))]


def config_token(config: Any, name: str) -> Any:
    """Return a value such as "eos_token_id" of a config or its nested config: an id, several ids, or None."""
    found = (getattr(each, name, None) for each in decoder_configs(config))
    return next((token for token in found if token is not None), None)


def special_token(view: CheckpointView, name: str) -> Any:
    """Return a value such as "decoder_start_token_id" of the generation settings, or else of the config."""
    token = getattr(view.generation_config, name, None)
    return config_token(view.config, name) if token is None else token
