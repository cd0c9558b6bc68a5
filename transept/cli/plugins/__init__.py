"""``transept plugins SUBCOMMAND``: list, check, install and write plugins."""

from __future__ import annotations

import argparse

from transept.cli.commands import COMMANDS
from transept.cli.plugins import install, new, reports
from transept.registry.plugins import DISABLE_VARIABLE


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``transept plugins`` and its subcommands."""
    parser = commands.add_parser(
        "plugins",
        help=COMMANDS["plugins"],
        description=f"{COMMANDS['plugins'].capitalize()}. Each plugin adds one or more model families.",
        epilog=f"Set {DISABLE_VARIABLE} to a comma-separated list of plugins or distributions to disable them.",
    )
    subcommands = parser.add_subparsers(title="subcommands", metavar="SUBCOMMAND", required=True)
    for subcommand in (reports, install, new):  # in the order of --help
        subcommand.add_parser(subcommands)
