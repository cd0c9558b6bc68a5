"""WeightMap: from a checkpoint's parameter names to the model's. Written by plugins, followed by `load_weights`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from transept.core.checkpoints.plain_files import PlainFiles
from transept.errors import PluginError


@dataclass(frozen=True)
class WeightMap:
    r"""How one checkpoint format names the weights of one model family.

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
    tied: (regex, target) of further names under which a checkpoint may hold a weight that it holds already. They come
        before the rules; such a tensor fills its target when nothing else did, and must equal it otherwise.
    ignored: regexes of checkpoint names that are rightly left out (recomputed buffers, scalars). They come first.
    zeros: regexes of targets (``"decoder.layers.0.self_attn.qkv_proj.bias#k"``) that are zero where a checkpoint does
        not hold them.
    config: checkpoint -> PretrainedConfig, for formats whose config.json is not one, and for families whose config.json
        leaves to the weights what the model must know; those start from `huggingface_config`.
    generation_config: (checkpoint, config) -> GenerationConfig, likewise.
    plain: what lets a checkpoint's configs and tokenizer be read without transformers. A `config` of its own comes
        first, and so does a `generation_config`.

    Raises PluginError for a regex that does not compile, and for a target with a group that its regex does not have.
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
                re.sub(regex, target, "")  # reads the target, whatever matches
            except (re.error, IndexError) as error:
                raise PluginError(f'WeightMap: target "{target}" does not fit "{regex}": {error}') from None

    def is_ignored(self, name: str) -> bool:
        """Whether this checkpoint name is rightly left out."""
        return any(re.fullmatch(regex, name) for regex in self.ignored)

    def target(self, name: str) -> str | None:
        """Where `rules` put this checkpoint name, or None."""
        return _first_target(self.rules, name)

    def tied_target(self, name: str) -> str | None:
        """Where `tied` puts this checkpoint name, or None."""
        return _first_target(self.tied, name)

    def is_zero(self, target: str) -> bool:
        """Whether this target is zero where a checkpoint does not hold it."""
        return any(re.fullmatch(regex, target) for regex in self.zeros)


def _first_target(rules: tuple[tuple[str, str], ...], name: str) -> str | None:
    for regex, target in rules:
        if match := re.fullmatch(regex, name):
            return match.expand(target)
    return None
