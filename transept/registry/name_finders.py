"""NameFinder: calls a plugin that finds names in a text, and checks its spans. Called by `transept.speech`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transept.errors import ParameterError, PluginError, TranseptError, message_of, shown
from transept.registry.plugins import DISABLE_VARIABLE, PluginReport, Plugins


@dataclass(frozen=True)
class NameFinder:
    """The finder of names of a plugin."""

    plugin: PluginReport

    def __call__(self, text: str, language: str) -> list[tuple[int, int]]:
        """Return the start and the end of each name, in order. Arguments: see the hook `find_names`.

        Raises PluginError for any error of the plugin, and for invalid spans.
        """
        assert self.plugin.find_names is not None
        named = f"the finder of names of {self.plugin.name} ({self.plugin.distribution} {self.plugin.version})"
        try:
            returned = self.plugin.find_names(text=text, language=language)
            spans = [_checked(span, text) for spans in returned for span in spans]  # of one hook; pluggy drops None
        except TranseptError as error:
            raise PluginError(f"{named}: {error}") from error
        except Exception as error:
            raise PluginError(f"{named} failed: {type(error).__name__}: {message_of(error)}") from error
        return sorted(spans)


def find_name_finder(plugins: Plugins) -> NameFinder:
    """Return the installed finder of names. Raises ParameterError without one, or for several."""
    found = [report for report in plugins.reports if report.find_names is not None]
    if len(found) > 1:
        names = " and ".join(f"{report.name} ({report.distribution})" for report in found)
        raise ParameterError(
            f"{len(found)} plugins find names: {names}; leave one out with {DISABLE_VARIABLE}={found[-1].distribution}",
            param="redact",
        )
    if not found:
        failed = "".join(f" {report.name} failed to load: {report.error}." for report in plugins.with_status("failed"))
        raise ParameterError(
            f"{{redact}}: to find names needs a plugin with the hook find_names, and none is installed.{failed} "
            f"Install one, or leave names out",
            param="redact",
        )
    return NameFinder(found[0])


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
