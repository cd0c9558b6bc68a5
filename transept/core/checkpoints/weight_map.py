"""WeightMap: maps a checkpoint's parameter names to the model's. Plugins write it, and `load_weights` uses it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from transept.core.checkpoints.plain_files import PlainFiles
from transept.errors import PluginError


@dataclass(frozen=True)
class WeightMap:
    r"""The names of one model family's weights in one checkpoint format.

    Names are matched by regular expressions that must match the whole name. A target is a name of the model's
    ``state_dict``, may use ``\1`` and ``\2``, and may end in ``#part`` or ``#k+v``: one part, or adjacent parts, of a
    StackedParameter. For example::

        WeightMap(
            rules=(
                (r"model\.(.*)\.([qkv])_proj\.(weight|bias)", r"\1.qkv_proj.\3#\2"),
                (r"model\.(.*)", r"\1"),
            ),
            tied=((r"lm_head\.weight", "lm_head.weight"),),
            zeros=(r".*\.qkv_proj\.bias#k",),
        )

    rules: (regex, target); the first match wins.
    tied: (regex, target) of further names that a checkpoint may have for a weight. They are matched before the rules;
        such a tensor fills its target if no other tensor does, and otherwise must equal it.
    ignored: regexes of checkpoint names to skip (recomputed buffers, scalars). They are matched first.
    zeros: regexes of targets (``"decoder.layers.0.self_attn.qkv_proj.bias#k"``) that are zero if a checkpoint lacks
        them.
    config: checkpoint -> PretrainedConfig or PlainConfig, for formats without a config.json of transformers, and for
        families whose config.json lacks values that follow from the weights; these start from `huggingface_config`.
    generation_config: (checkpoint, config) -> GenerationConfig or PlainConfig, likewise.
    plain: declares the files that can be read without transformers. `config` and `generation_config` take precedence.

    Raises PluginError for a regex that does not compile, and for a target with a group that its regex does not have.
    Loading raises CheckpointError with a list of all weights that are missing, unexpected, duplicate or of a wrong
    shape.
    """

    rules: tuple[tuple[str, str], ...]
    tied: tuple[tuple[str, str], ...] = ()
    ignored: tuple[str, ...] = ()
    zeros: tuple[str, ...] = ()
    config: Callable[[Any], Any] | None = None
    generation_config: Callable[[Any, Any], Any] | None = None
    plain: PlainFiles | None = None

    def __post_init__(self) -> None:
        for regex in (*(regex for regex, _ in (*self.rules, *self.tied)), *self.ignored, *self.zeros):
            try:
                re.compile(regex)
            except re.error as error:
                raise PluginError(f'WeightMap: "{regex}" is not a regular expression: {error}') from None
        for regex, target in (*self.rules, *self.tied):
            try:
                re.sub(regex, target, "")  # parses the target, even without a match
            except (re.error, IndexError) as error:
                raise PluginError(f'WeightMap: target "{target}" does not fit "{regex}": {error}') from None

    def is_ignored(self, name: str) -> bool:
        """Return True if this checkpoint name is to be skipped."""
        return any(re.fullmatch(regex, name) for regex in self.ignored)

    def target(self, name: str) -> str | None:
        """Return the target of this checkpoint name by `rules`, or None."""
        return _first_target(self.rules, name)

    def tied_target(self, name: str) -> str | None:
        """Return the target of this checkpoint name by `tied`, or None."""
        return _first_target(self.tied, name)

    def is_known(self, name: str) -> bool:
        """Return True if this checkpoint name has a target, or is to be skipped."""
        return self.is_ignored(name) or bool(self.tied_target(name) or self.target(name))

    def is_zero(self, target: str) -> bool:
        """Return True if this target is zero when a checkpoint lacks it."""
        return any(re.fullmatch(regex, target) for regex in self.zeros)


def _first_target(rules: tuple[tuple[str, str], ...], name: str) -> str | None:
    for regex, target in rules:
        if match := re.fullmatch(regex, name):
            return match.expand(target)
    return None
