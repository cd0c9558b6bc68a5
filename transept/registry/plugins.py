"""Discovery: a PluginReport for every entry point in the group ``transept.plugins``, also for broken plugins.

Called by the engine and the command line. A broken plugin stops neither the others nor the program. The module has no
state and does not import torch: a ModelSpec has references to heavy objects.
"""

from __future__ import annotations

import importlib.metadata
import logging
import os
import traceback
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import pluggy

from transept.errors import MissingPackageError, PluginError, suggest
from transept.registry import hookspecs
from transept.registry.hookspecs import ENTRY_POINT_GROUP, PROJECT_NAME
from transept.registry.requirements import can_both_be_met, in_words
from transept.registry.spec import ModelSpec

DISABLE_VARIABLE = "TRANSEPT_DISABLE_PLUGINS"  # comma-separated names of plugins or of distributions
OTHER_HOOKS = ("diarize", "embed_voice", "voice_model", "find_names", "align_words")  # besides register_models
HOOKS = ("register_models", *OTHER_HOOKS)
Status: TypeAlias = Literal["ok", "failed", "missing", "disabled"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Hook:
    """A function of a plugin. arguments: names of those that it takes."""

    function: Callable[..., list[Any]]
    arguments: tuple[str, ...]

    def __call__(self, **arguments: Any) -> list[Any]:
        """Return a list with the result; an empty list for None. pluggy drops arguments that the function lacks."""
        return self.function(**arguments)


@dataclass(frozen=True)
class PluginReport:
    """The result of loading one entry point.

    name, distribution, version: the entry point's name, and the installed distribution that has it.
    status: ``"ok"``; ``"failed"``, with the reason in `error`, on one line, and `traceback`; ``"missing"`` for a plugin
        that needs packages that are not installed, which `error` names; or ``"disabled"``.
    models: the model families that it runs; empty unless it was loaded.
    diarize, embed_voice, voice_model, find_names, align_words: its hooks of these names; None without the hook.
    """

    name: str
    distribution: str
    version: str
    status: Status
    error: str | None = None
    traceback: str | None = None
    models: tuple[ModelSpec, ...] = ()
    diarize: Hook | None = None
    embed_voice: Hook | None = None
    voice_model: Hook | None = None
    find_names: Hook | None = None
    align_words: Hook | None = None

    @property
    def architectures(self) -> tuple[str, ...]:
        """All architectures that the plugin runs, in the order of its declaration."""
        return tuple(dict.fromkeys(architecture for spec in self.models for architecture in spec.architectures))

    @property
    def provides(self) -> str:
        """The plugin's abilities in words: its architectures and its other hooks."""
        claims = [f"{name}{_qualified(spec)}" for spec in self.models for name in spec.architectures]
        claims += ["tells speakers apart"] if self.diarize else []
        claims += ["recognizes voices"] if self.embed_voice else []
        claims += ["finds names"] if self.find_names else []
        claims += ["times words"] if self.align_words else []
        return ", ".join(claims)


class Claim(NamedTuple):
    """A plugin's declaration that it runs an architecture, if config.json meets the spec's requirements."""

    report: PluginReport
    spec: ModelSpec

    def __str__(self) -> str:
        return f"{self.report.name} ({self.report.distribution}){_qualified(self.spec)}"


@dataclass(frozen=True)
class Plugins:
    """All plugins, including broken and disabled ones, sorted by name and distribution."""

    reports: tuple[PluginReport, ...]

    def with_status(self, status: Status) -> tuple[PluginReport, ...]:
        """Return the reports with this status."""
        return tuple(report for report in self.reports if report.status == status)

    @property
    def claims(self) -> dict[str, tuple[Claim, ...]]:
        """Architecture -> the plugins that run it, in alphabetical order."""
        claims: dict[str, tuple[Claim, ...]] = {}
        for report in self.reports:
            for spec in report.models:
                for architecture in spec.architectures:
                    claims[architecture] = (*claims.get(architecture, ()), Claim(report, spec))
        return dict(sorted(claims.items()))

    @property
    def conflicts(self) -> dict[str, tuple[Claim, ...]]:
        """Claims of several plugins on an architecture that one config.json may fit."""
        rivals = {
            architecture: tuple(claim for claim in claims if any(_are_rivals(claim, other) for other in claims))
            for architecture, claims in self.claims.items()
        }
        return {architecture: claims for architecture, claims in rivals.items() if claims}


def discover(environ: Mapping[str, str] = os.environ) -> Plugins:
    """Load every installed plugin, except those in ``TRANSEPT_DISABLE_PLUGINS`` of `environ`.

    Errors of a plugin are in its report, and are not raised.
    """
    disabled = {name.strip() for name in environ.get(DISABLE_VARIABLE, "").split(",")} - {""}
    entry_points = importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)
    reports = [_report(entry_point, disabled) for entry_point in entry_points]
    known = {name for report in reports for name in (report.name, report.distribution)}
    for name in sorted(disabled - known):
        logger.warning(
            '%s names "%s", but no such plugin is installed.%s', DISABLE_VARIABLE, name, suggest(name, known)
        )
    return Plugins(tuple(sorted(reports, key=lambda report: (report.name, report.distribution))))


def _report(entry_point: importlib.metadata.EntryPoint, disabled: Set[str]) -> PluginReport:
    distribution = entry_point.dist
    name = entry_point.name
    distribution_name = (distribution and distribution.metadata["Name"]) or "unknown"
    version = (distribution and distribution.metadata["Version"]) or "unknown"
    if not disabled.isdisjoint({name, distribution_name}):
        return PluginReport(name, distribution_name, version, "disabled")
    try:
        models, hooks = _load(entry_point)
    except KeyboardInterrupt:
        raise
    except MissingPackageError as error:
        return PluginReport(name, distribution_name, version, "missing", error=one_line(error))
    except BaseException as error:  # a plugin may call sys.exit(), a Rust extension may panic
        trace = traceback.format_exc()
        return PluginReport(name, distribution_name, version, "failed", error=one_line(error), traceback=trace)
    origin = f'plugin "{name}" of {distribution_name} {version}'
    models = tuple(replace(spec, origin=origin) for spec in models)
    return PluginReport(name, distribution_name, version, "ok", models=models, **hooks)


def _load(entry_point: importlib.metadata.EntryPoint) -> tuple[tuple[ModelSpec, ...], dict[str, Any]]:
    """Import, register and check one plugin, and get its models and its other hooks.

    Every entry point has a separate plugin manager. So a plugin that fails leaves no half-registered hook, two
    distributions may use the same plugin name, and the origin of each model is known.
    """
    manager = pluggy.PluginManager(PROJECT_NAME)
    manager.add_hookspecs(hookspecs)
    plugin = entry_point.load()
    manager.register(plugin, name=entry_point.name)
    _check_hooks(manager, plugin)
    hooks = {
        name: Hook(hook, implementations[0].argnames)
        for name in OTHER_HOOKS
        if (implementations := (hook := getattr(manager.hook, name)).get_hookimpls())
    }
    returned = manager.hook.register_models()
    if not returned and manager.hook.register_models.get_hookimpls():  # pluggy drops None
        raise PluginError("register_models returned None, not a list of ModelSpec")
    models = tuple(spec for specs in returned for spec in _checked_list(specs))
    _check_claims(models)
    return models, hooks


def _check_hooks(manager: pluggy.PluginManager, plugin: Any) -> None:
    """Raise PluginError for an unknown hook, which is probably misspelt, and for a plugin without a hook."""
    try:
        manager.check_pending()
    except pluggy.PluginValidationError:
        hooks = manager.get_hookcallers(plugin) or []
        unknown = ", ".join(f'"{hook.name}"' for hook in hooks if not hook.has_spec())
        known = ", ".join(f'"{name}"' for name in HOOKS)
        raise PluginError(f"unknown hook {unknown}; the hooks are {known}") from None
    implemented = {name: found for name in HOOKS if (found := getattr(manager.hook, name).get_hookimpls())}
    if not implemented:
        known = ", ".join(f"{name}()" for name in HOOKS)
        raise PluginError(f"no hook: define one of {known}, and mark it with @hookimpl")
    for name, (implementation, *_) in implemented.items():
        if implementation.kwargnames:
            argument = implementation.kwargnames[0]
            raise PluginError(f"{name} never gets {argument}, which has a default value: leave the value out")
    if "embed_voice" in implemented and "voice_model" not in implemented:
        raise PluginError("embed_voice has no voice_model() beside it, which returns its VoiceModel")


def _checked_list(specs: Any) -> list[ModelSpec]:
    if not isinstance(specs, list):
        raise PluginError(f"register_models returned {_a(specs)}, not a list of ModelSpec")
    for spec in specs:
        if not isinstance(spec, ModelSpec):
            raise PluginError(f"register_models returned a list with {_a(spec)} in it, not a list of ModelSpec")
    return specs


def _check_claims(models: tuple[ModelSpec, ...]) -> None:
    """Raise PluginError for two declarations of an architecture that one config.json could fit."""
    owners: dict[str, list[ModelSpec]] = {}
    for spec in models:
        for architecture in spec.architectures:
            for owner in owners.setdefault(architecture, []):
                if can_both_be_met(owner.requires, spec.requires):
                    raise PluginError(
                        f'"{architecture}" is declared twice: by {owner.name}{_qualified(owner)} and by '
                        f"{spec.name}{_qualified(spec)}"
                    )
            owners[architecture].append(spec)


def _are_rivals(one: Claim, other: Claim) -> bool:
    return one.report is not other.report and can_both_be_met(one.spec.requires, other.spec.requires)


def _qualified(spec: ModelSpec) -> str:
    """Return the requirements of a spec in words, to follow an architecture or a family's name."""
    return f" with {in_words(spec.requires)}" if spec.requires else ""


def _a(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else f"a value of type {type(value).__name__}"


def one_line(error: BaseException) -> str:
    """Return an error on one line: ``"ImportError: No module named 'foo'"``."""
    try:
        text = " ".join(str(error).split())
    except Exception as broken:  # a plugin's exception class may also fail to print
        text = f"its text cannot be shown ({type(broken).__name__})"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
