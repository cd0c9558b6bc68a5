"""PlainConfig: a config of named values. Made of what weight maps derive from checkpoints or declare of their files."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class PlainConfig(SimpleNamespace):
    """Values as attributes, equal to another of the same values: a model's config, or its generation config.

    A weight map may return it where it could return a transformers config or GenerationConfig, whose import takes
    longer than all else that loads a small model. A value that was not given is an AttributeError in a config; a
    generation config may leave out whatever it does not set.
    """

    def to_dict(self) -> dict[str, Any]:
        """Name -> value."""
        return dict(vars(self))

    def update(self, **values: Any) -> None:
        """Set values, as GenerationConfig's method of this name does."""
        vars(self).update(values)
