"""NameFinder: calls a plugin that finds names in a text, and checks its spans. Called by `transept.speech`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transept.errors import PluginError, shown
from transept.registry.plugins import PluginReport, Plugins
from transept.registry.single_hooks import errors_of, only_plugin


@dataclass(frozen=True)
class NameFinder:
    """The finder of names of a plugin."""

    plugin: PluginReport

    def __call__(self, text: str, language: str) -> list[tuple[int, int]]:
        """Return the start and the end of each name, in order. Arguments: see the hook `find_names`.

        Raises PluginError for any error of the plugin, and for invalid spans.
        """
        assert self.plugin.find_names is not None
        with errors_of(self.plugin, "the finder of names"):
            returned = self.plugin.find_names(text=text, language=language)
            return sorted(
                _checked(span, text) for spans in returned for span in spans
            )  # of one hook; pluggy drops None


def find_name_finder(plugins: Plugins) -> NameFinder:
    """Return the installed finder of names. Raises ParameterError without one, or for several."""
    needs = "{redact}: to find names needs a plugin with the hook find_names"
    return NameFinder(
        only_plugin(plugins, "find_names", "find names", needs, "Install one, or leave names out", param="redact")
    )


def _checked(span: Any, text: str) -> tuple[int, int]:
    """Return a valid span. Raises PluginError for anything else."""
    try:
        start, end = span
    except (TypeError, ValueError):
        raise PluginError(f"a name is (start, end) in the text, not {shown(span)}") from None
    if not all(isinstance(each, int) and not isinstance(each, bool) for each in (start, end)):
        raise PluginError(f"the start and the end of a name must be indices of characters, not {shown(span)}")
    if not 0 <= start < end <= len(text):
        raise PluginError(f"a name must be within the text, from 0 to {len(text)}, not {shown(span)}")
    return start, end
