"""``transept models``: list the models that have short names, and download them."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from transept.cli.commands import COMMANDS
from transept.cli.flags import add_flag
from transept.cli.plugins.reports import discover_quietly
from transept.cli.terminal import escape, escape_name, print_stderr
from transept.core.config import EngineConfig
from transept.errors import TranseptError
from transept.options import declared

MEGABYTE = 1_000_000


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``transept models`` and ``transept models download``."""
    parser = commands.add_parser(
        "models",
        help=COMMANDS["models"],
        usage="transept models [option ...]\n       transept models download [option ...] NAME ...",
        description="List the models that have short names, their repositories, and which are on this machine. A model "
        "is downloaded at its first use, or by `transept models download`.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for programs")
    parser.set_defaults(run=show, parser=parser)
    _add_model_dir(parser, None)
    subcommands = parser.add_subparsers(title="subcommands", metavar="SUBCOMMAND", prog="transept models")
    about = "list the models, like `transept models`"
    subparser = subcommands.add_parser("list", help=about, description=about.capitalize() + ".")
    subparser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON, for programs")
    _add_model_dir(subparser, argparse.SUPPRESS)  # so that it does not overwrite the parent's value
    subparser.set_defaults(run=show, parser=subparser)
    about = "download models, for instance before --offline; existing models stay unchanged"
    subparser = subcommands.add_parser(
        "download",
        help=about,
        description=about.capitalize() + ". Their folders go to standard output.",
        epilog="Exit code: 0 all models are on this machine, 1 some are not, 2 bad usage.",
    )
    subparser.add_argument("models", nargs="+", metavar="NAME", help="a name that `transept models` shows, or org/name")
    _add_model_dir(subparser, argparse.SUPPRESS)
    subparser.set_defaults(run=download, parser=subparser)


def _add_model_dir(parser: argparse.ArgumentParser, default: str | None) -> None:
    add_flag(parser, declared(EngineConfig)["model_dir"], default=default)


@dataclass(frozen=True)
class _Model:
    """A row of the table. on_disk: ``"yes"``, ``"incomplete"`` or ``"no"``. megabytes: on disk, or to download."""

    name: str
    repository: str
    on_disk: str
    megabytes: int
    path: str | None


def show(arguments: argparse.Namespace) -> int:
    """Run ``transept models``."""
    folder = None if arguments.model_dir is None else Path(arguments.model_dir).expanduser()
    if folder is not None and not folder.is_dir():
        missing = "is not a folder" if folder.exists() else "does not exist; the first download makes it"
        print_stderr(f"transept: {escape_name(folder)} {missing}")
    models = _models(folder)
    if arguments.json:
        print(escape(json.dumps([asdict(model) for model in models], indent=2)))
        return 0
    from transept.core.checkpoints import hub

    rows = [("NAME", "ON DISK", "MB", "REPOSITORY")]
    rows += [(model.name, model.on_disk, str(model.megabytes), model.repository) for model in models]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, on_disk, megabytes, repository in rows:
        row = f"{name:{widths[0]}}  {on_disk:{widths[1]}}  {megabytes:>{widths[2]}}  {repository}"
        print(escape(row))
    print(escape(f"\nKept in {folder or hub.cache_folder()}"))
    return 0


def download(arguments: argparse.Namespace) -> int:
    """Run ``transept models download``."""
    from transept.core.checkpoints.source import locate

    num_failed = 0
    for name in arguments.models:
        try:
            with contextlib.redirect_stdout(sys.stderr):  # keeps plugins' prints out of the output
                path = locate(name, model_dir=arguments.model_dir)
            print(escape(path), flush=True)
        except TranseptError as error:
            num_failed += 1
            print_stderr(f"transept: {error}")
    return 1 if num_failed else 0


def _models(folder: Path | None) -> list[_Model]:
    """Return all models with short names. folder: of models; None: the hub's cache."""
    from transept.core.checkpoints import hub
    from transept.core.checkpoints.source import kept_directory
    from transept.registry.published import published_checkpoints

    found = []
    for name, meant in published_checkpoints(discover_quietly()).items():
        for each in meant:
            copy = kept_directory(name, folder) or hub.cached_copy(each.repository, folder)
            complete = copy is not None and hub.is_complete(copy)
            state = "no" if copy is None else "yes" if complete else "incomplete"
            megabytes = each.megabytes if copy is None or not complete else round(hub.num_bytes(copy) / MEGABYTE)
            found.append(_Model(name, each.repository, state, megabytes, None if copy is None else str(copy)))
    return found
