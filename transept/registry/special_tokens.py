"""Ids of special tokens, wherever a checkpoint has them: its generation settings, its config, or a config within that.

So a family whose config.json nests one config in another, under "decoder" or "text_config", need copy nothing.
"""

from __future__ import annotations

from typing import Any

from transept.registry.checkpoint_view import CheckpointView

NESTED = ("decoder", "text_config")  # where configs have the decoder's


def decoder_configs(config: Any) -> list[Any]:
    """A config, and those within it that are the decoder's."""
    nested = [getattr(config, name, None) for name in NESTED]
    return [config, *(each for each in nested if each is not None and not isinstance(each, str | int | float | bool))]


def config_token(config: Any, name: str) -> Any:
    """What a config has under a name such as "eos_token_id", or what one within it has: an id, several, or None."""
    found = (getattr(each, name, None) for each in decoder_configs(config))
    return next((token for token in found if token is not None), None)


def special_token(view: CheckpointView, name: str) -> Any:
    """What the generation settings have under a name such as "decoder_start_token_id", or else the config."""
    token = getattr(view.generation_config, name, None)
    return config_token(view.config, name) if token is None else token
