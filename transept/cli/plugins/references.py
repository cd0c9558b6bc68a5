"""Check that the references in plugins' declarations can be imported and are of the right kind.

For ``transept plugins check``: discovery does not import them, so that listing plugins is fast. Calls no function of a
plugin, and needs no checkpoint.
"""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Iterator
from typing import Any

from transept.errors import PluginError, shown
from transept.registry.plugins import PluginReport, Plugins, one_line
from transept.registry.spec import ModelSpec, resolve

BY_KEY = ("input_mappers", "encoder_inputs", "weight_maps")  # fields of a ModelSpec that are mappings
TASKS = ("speech", "text", "vision")
NAMES = ("features_modality", "short_features_modality", "modality")  # fields whose text is not a reference


def references(spec: ModelSpec) -> Iterator[tuple[str, Any]]:
    """Return a spec's references and weight maps, each after its field, such as ``speech.features``."""
    found: list[tuple[str, Any]] = [("model_class", spec.model_class)]
    for name in BY_KEY:
        found += [(f'{name}["{key}"]', value) for key, value in getattr(spec, name).items()]
    for task in TASKS:
        declared = getattr(spec, task)
        fields = () if declared is None else dataclasses.fields(declared)
        found += [(f"{task}.{each.name}", getattr(declared, each.name)) for each in fields if each.name not in NAMES]
    return ((where, value) for where, value in found if isinstance(value, str) or where.startswith("weight_maps"))


def _check_kind(where: str, reference: Any, named: Any) -> None:
    """Raise PluginError if an imported reference is of the wrong kind for its field."""
    from transept.core.checkpoints.weight_map import WeightMap
    from transept.core.model import ForConditionalGeneration

    if where == "model_class":
        is_kind = isinstance(named, type) and issubclass(named, ForConditionalGeneration)
        kind = "subclass of ForConditionalGeneration"
    elif where.startswith("weight_maps"):
        is_kind, kind = isinstance(named, WeightMap), "WeightMap"
    else:
        is_kind, kind = callable(named), "function"
    if not is_kind:
        written = f'"{reference}"' if isinstance(reference, str) else "it"
        raise PluginError(f"{written} is {shown(named)}, which is not a {kind}")


def with_references(plugins: Plugins) -> Plugins:
    """Return the plugins, with status "failed" for those that have a bad reference.

    Imports their models, and so torch. Raises no exception of a plugin except KeyboardInterrupt.
    """
    return Plugins(tuple(_checked(report) if report.status == "ok" else report for report in plugins.reports))


def _checked(report: PluginReport) -> PluginReport:
    errors: list[str] = []
    traces: list[str] = []
    for spec in report.models:
        for where, reference in references(spec):
            try:
                _check_kind(where, reference, resolve(reference))
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # like discovery, also SystemExit
                is_ours = isinstance(error, PluginError)  # names the reference itself
                reason = str(error) if is_ours else f'"{reference}" cannot be imported: {one_line(error)}'
                errors.append(f"{where} of {spec.name}: {reason}")
                traces.append(traceback.format_exc())
    if not errors:
        return report
    return dataclasses.replace(report, status="failed", error="; ".join(errors), traceback="\n".join(traces))
