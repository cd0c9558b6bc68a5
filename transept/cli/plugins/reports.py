"""``transept plugins list`` and ``transept plugins check``: the installed plugins and their states."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys

from transept.cli.plugins.references import with_references
from transept.cli.terminal import escape
from transept.registry.plugins import DISABLE_VARIABLE, PluginReport, Plugins, discover
from transept.registry.requirements import required_values


def add_parser(subcommands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``list`` and ``check``."""
    about = "list the plugins, each with its distribution, its state and its architectures"
    list_parser = subcommands.add_parser("list", help=about, description=about.capitalize() + ".")
    list_parser.set_defaults(run=list_plugins)

    about = "like list, but import all references; exit with 1 if a plugin fails or if two run the same checkpoints"
    check_parser = subcommands.add_parser("check", help=about, description=about.capitalize() + ".")
    check_parser.add_argument(
        "--traceback", action="store_true", help="show the tracebacks of failed plugins, on stderr"
    )
    check_parser.set_defaults(run=check_plugins)

    for subparser in (list_parser, check_parser):
        subparser.add_argument("--json", action="store_true", help="print JSON, for programs")


def list_plugins(arguments: argparse.Namespace) -> int:
    """Run ``transept plugins list``."""
    _show(discover_quietly(), as_json=arguments.json)
    return 0


def check_plugins(arguments: argparse.Namespace) -> int:
    """Run ``transept plugins check``."""
    with contextlib.redirect_stdout(sys.stderr):
        plugins = with_references(discover())
    failed = plugins.with_status("failed")
    _show(plugins, as_json=arguments.json)
    if arguments.traceback:
        for report in failed:
            failure = f"\n{report.name} from {_distribution(report)}:\n{report.traceback}"
            print(escape(failure), end="", file=sys.stderr)
    return 1 if failed or plugins.conflicts else 0


def discover_quietly() -> Plugins:
    """Return all installed plugins. Their prints at import go to stderr."""
    with contextlib.redirect_stdout(sys.stderr):
        return discover()


def _show(plugins: Plugins, *, as_json: bool) -> None:
    print(escape(json.dumps(as_data(plugins), indent=2) if as_json else as_text(plugins)))


def as_data(plugins: Plugins) -> dict[str, object]:
    """Return the table for JSON."""
    return {
        "plugins": [
            {
                "name": report.name,
                "distribution": report.distribution,
                "version": report.version,
                "status": _status(plugins, report),
                "architectures": list(report.architectures),
                "models": [
                    {
                        "name": spec.name,
                        "architectures": list(spec.architectures),
                        "requires": required_values(spec.requires),
                    }
                    for spec in report.models
                ],
                "diarizes": report.diarize is not None,
                "recognizes_voices": report.embed_voice is not None,
                "finds_names": report.find_names is not None,
                "times_words": report.align_words is not None,
                "error": report.error,
            }
            for report in plugins.reports
        ],
        "conflicts": [
            {
                "architecture": architecture,
                "plugins": [
                    {
                        "name": report.name,
                        "distribution": report.distribution,
                        "requires": required_values(spec.requires),
                    }
                    for report, spec in claims
                ],
            }
            for architecture, claims in plugins.conflicts.items()
        ],
    }


def as_text(plugins: Plugins) -> str:
    """Return the table as text, with a line for each conflict below it."""
    if not plugins.reports:
        return "No plugins are installed."
    rows = [("PLUGIN", "DISTRIBUTION", "STATUS", "ARCHITECTURES OR ERROR")]
    for report in plugins.reports:
        detail = report.error or report.provides
        rows.append((report.name, _distribution(report), _status(plugins, report), detail))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = ["  ".join([*map(str.ljust, row[:3], widths), row[3]]).rstrip() for row in rows]
    for architecture, claims in plugins.conflicts.items():
        rivals = " and by ".join(map(str, claims))
        lines.append(f"Conflict: {architecture} is run by {rivals}. Choose with --plugin, or {DISABLE_VARIABLE}.")
    return "\n".join(lines)


def _status(plugins: Plugins, report: PluginReport) -> str:
    """Return a plugin's status; ``"conflict"`` in place of ``"ok"`` if another plugin claims its architectures."""
    is_rival = any(claim.report is report for claims in plugins.conflicts.values() for claim in claims)
    return "conflict" if report.status == "ok" and is_rival else report.status


def _distribution(report: PluginReport) -> str:
    return f"{report.distribution} {report.version}"
