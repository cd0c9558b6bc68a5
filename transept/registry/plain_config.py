"""PlainConfig: a config of named values, which weight maps derive from checkpoints or declare for their files."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class PlainConfig(SimpleNamespace):
    """A model's config or generation config, with values as attributes. Equal to another with the same values.

    A weight map may return it instead of a transformers config or GenerationConfig, whose import takes longer than
    everything else in loading a small model. Reading a missing value of a config raises AttributeError; a generation
    config may omit unset values.
    """

    def to_dict(self) -> dict[str, Any]:
        """Return name -> value."""
        return dict(vars(self))

    def update(self, **values: Any) -> None:
        """Set values, like GenerationConfig.update."""
        vars(self).update(values)
