"""Hooks that one installed plugin implements: find that plugin, and name it in its errors.

`transept.registry.diarizers`, `voice_embedders`, `name_finders` and `word_aligners` call it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Real
from typing import Any

from transept.errors import ParameterError, PluginError, TranseptError, message_of
from transept.registry.plugins import DISABLE_VARIABLE, PluginReport, Plugins

OWN_SPEAKERS = "transept-speakers"  # a distribution of this project, which other plugins replace
SPEAKERS_ADVICE = (
    "`pip install 'transept[speakers]'` installs Transept's own plugin. If it is installed, check whether the "
    f"environment variable {DISABLE_VARIABLE} disables it"
)


def only_plugin(
    plugins: Plugins, hook: str, does: str, needs: str, advice: str, param: str, value: Any = None
) -> PluginReport:
    """Return the installed plugin with a hook. Other plugins replace Transept's own.

    does, needs, advice, param, value: of the errors; does is such as "tell speakers apart".
    Raises ParameterError without such a plugin, or for several.
    """
    found = [report for report in plugins.reports if getattr(report, hook) is not None]
    found = [report for report in found if report.distribution != OWN_SPEAKERS] or found
    if len(found) > 1:
        names = " and ".join(f"{report.name} ({report.distribution})" for report in found)
        raise ParameterError(
            f"{len(found)} plugins {does}: {names}; leave one out with {DISABLE_VARIABLE}={found[-1].distribution}",
            param=param,
            value=value,
        )
    if not found:
        failed = "".join(f" {report.name} failed to load: {report.error}." for report in plugins.with_status("failed"))
        raise ParameterError(f"{needs}, and none is installed.{failed} {advice}", param=param, value=value)
    return found[0]


def is_time(value: Any) -> bool:
    """True if a plugin's value is a finite number of seconds."""
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


@contextmanager
def errors_of(plugin: PluginReport, what: str) -> Iterator[None]:
    """Raise any error as a PluginError that names the plugin. what: such as "the diarizer"."""
    named = f"{what} of {plugin.name} ({plugin.distribution} {plugin.version})"
    try:
        yield
    except TranseptError as error:
        raise PluginError(f"{named}: {error}") from error
    except Exception as error:
        raise PluginError(f"{named} failed: {type(error).__name__}: {message_of(error)}") from error
