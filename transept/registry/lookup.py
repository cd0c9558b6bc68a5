"""Find the ModelSpec that runs a checkpoint, by ``architectures`` of its config.json, or else ``model_type``.

A spec may require further values. Called by the engine. Imports no model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from transept.errors import UnsupportedModelError, suggest
from transept.registry.hookspecs import ENTRY_POINT_GROUP
from transept.registry.plugins import DISABLE_VARIABLE, Claim, PluginReport, Plugins
from transept.registry.requirements import found_in_words, in_words, is_met
from transept.registry.spec import ModelSpec

_TASK = re.compile(r"(?:For[A-Z]\w+|Model)$")  # the suffix of a family's name in transformers' classes
HOW_TO_INSTALL = (
    "More model families come as plugins: `transept plugins install` one, a distribution with an entry point in "
    f'"{ENTRY_POINT_GROUP}", or write it: `transept plugins new`. See `transept plugins check`.'
)


def find_model(
    plugins: Plugins,
    architectures: Sequence[str] | None,
    config: Mapping[str, Any],
    source: str,
    plugin: str | None = None,
) -> ModelSpec:
    """Return the ModelSpec that runs a checkpoint.

    architectures: of the checkpoint; the first one that a plugin runs decides. If empty, the architectures of its
        ``model_type``. config: content of its config.json.
    source: the user's name for the checkpoint, for messages.
    plugin: name of the plugin or its distribution; needed only if two plugins run the same architecture.

    Raises UnsupportedModelError if no plugin runs the checkpoint, if several do and `plugin` does not choose one, and
    if `plugin` is unknown, broken, disabled, or does not run it.
    """
    architectures = architectures or _of_model_type(plugins, config.get("model_type"))
    if not architectures:
        message = f"{_without_architectures(config, source)}\n{_what_is_known(plugins)}"
        raise UnsupportedModelError(message, param="model")
    chosen = plugins if plugin is None else Plugins(_chosen(plugins, plugin))
    unmet: list[Claim] = []
    for architecture in architectures:
        claims = chosen.claims.get(architecture, ())
        met = [claim for claim in claims if is_met(claim.spec.requires, config)]
        if len(met) > 1:
            raise _conflict([claim.report for claim in met], architecture, source)
        if met:
            return met[0].spec
        unmet += claims
    asked = " or ".join(f'"{architecture}"' for architecture in architectures)
    mismatch = _mismatch(unmet, config)
    if plugin is None:
        lines = [f"no plugin runs {asked} (from {source}).", *mismatch, _what_is_known(plugins)]
        raise UnsupportedModelError("\n".join(lines), param="model")
    claims = tuple(claim for architecture in architectures for claim in plugins.claims.get(architecture, ()))
    rivals = [claim.report for claim in claims if is_met(claim.spec.requires, config)]
    lines = [f'{{plugin}} "{plugin}" does not run {asked} (from {source}).', *mismatch, *_states(chosen.reports)]
    lines += _listing("Plugins that run it", rivals) or [HOW_TO_INSTALL]
    raise UnsupportedModelError("\n".join(lines), param="plugin", value=plugin)


def _of_model_type(plugins: Plugins, model_type: object) -> list[str]:
    """Return the architectures of a ``model_type``, such as MBartForConditionalGeneration for "mbart"."""
    return [
        architecture for architecture in plugins.claims if _plain(_TASK.sub("", architecture)) == _plain(model_type)
    ]


def _plain(name: object) -> str:
    return re.sub(r"[-_]", "", name).lower() if isinstance(name, str) else ""


def _without_architectures(config: Mapping[str, Any], source: str) -> str:
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        return (
            f'{source} does not say which model it is: its config.json has neither "architectures" nor "model_type".\n'
            "Copy them from the config.json of the model that it was made from."
        )
    return f'no plugin runs a model of type "{model_type}" (from {source}); its config.json has no "architectures".'


def _mismatch(claims: Sequence[Claim], config: Mapping[str, Any]) -> list[str]:
    """Return a line with the differing values in a config.json, and a line for each claim."""
    found = dict.fromkeys(word for claim in claims for word in found_in_words(claim.spec.requires, config))
    required = [f"{spec.name} ({_origin(report)}) requires {in_words(spec.requires)}." for report, spec in claims]
    return [f"Its config.json has {', '.join(found)}:", *(f"  {line}" for line in required)] if claims else []


def _chosen(plugins: Plugins, plugin: str) -> tuple[PluginReport, ...]:
    """Return the plugins of that name, or else of the distribution of that name."""
    by_name = tuple(report for report in plugins.reports if report.name == plugin)
    by_distribution = tuple(report for report in plugins.reports if report.distribution == plugin)
    if by_name or by_distribution:
        return by_name or by_distribution
    known = {name for report in plugins.reports for name in (report.name, report.distribution)}
    message = f"there is no {{plugin}} {plugin!r}.{suggest(plugin, known)}\n{_what_is_known(plugins)}"
    raise UnsupportedModelError(message, param="plugin", value=plugin)


def _conflict(reports: Sequence[PluginReport], architecture: str, source: str) -> UnsupportedModelError:
    # Plugins of the same name are told apart by their distributions.
    names = [report.name for report in reports]
    choices = names if len(set(names)) == len(names) else [report.distribution for report in reports]
    arguments = " or ".join(f"{{plugin={choice!r}}}" for choice in choices)
    return UnsupportedModelError(
        f'{len(reports)} plugins run "{architecture}" (from {source}): '
        f"{' and '.join(_origin(report) for report in reports)}.\n"
        f"Choose with {arguments}, or leave one out with {DISABLE_VARIABLE}={choices[-1]}.",
        param="plugin",
    )


def _what_is_known(plugins: Plugins) -> str:
    return "\n".join([*(_states(plugins.reports) or ["Loaded: no plugin."]), HOW_TO_INSTALL])


def _states(reports: Sequence[PluginReport]) -> list[str]:
    """Return a line for each state of plugins."""
    return [
        *_listing("Loaded", [report for report in reports if report.status == "ok"]),
        *_listing("Failed to load", [report for report in reports if report.status == "failed"]),
        *_listing(f"Left out by {DISABLE_VARIABLE}", [report for report in reports if report.status == "disabled"]),
    ]


def _listing(title: str, reports: Sequence[PluginReport]) -> list[str]:
    """Return a line that begins with the title; empty if there is nothing to list."""
    details = [report.error or report.provides for report in reports]
    listed = ", ".join(
        _origin(one) + (f" ({detail})" if detail else "") for one, detail in zip(reports, details, strict=True)
    )
    return [f"{title}: {listed}."] if listed else []


def _origin(report: PluginReport) -> str:
    return f"{report.name} from {report.distribution} {report.version}"
