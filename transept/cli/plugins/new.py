"""``transept plugins new NAME``: write a plugin distribution that works, for its author to change.

The folder ``skeleton`` beside this file has such distributions, ``transept-skeleton``, one a kind: the files in the
kind's folder and those in ``shared``. A new one is a copy of them under another name.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from transept.cli.plugins.reports import discover_quietly
from transept.cli.printable import printable
from transept.errors import PluginError

SKELETON = Path(__file__).parent / "skeleton"
EXTRAS = {"text": "", "speech": "", "image": "[image]"}  # kind of encoder -> what of Transept the plugin needs
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")  # in the normal form of PEP 503, and an identifier but for the "-"


def add_parser(subcommands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``new``."""
    about = "write a new plugin, transept-NAME: a small model that works, with its test, for you to change"
    parser = subcommands.add_parser("new", help=about, description=about[0].upper() + about[1:] + ".")
    parser.add_argument(
        "name", type=_name, metavar="NAME", help='name of the model family, such as "blenderbot" or "blenderbot-small"'
    )
    parser.add_argument("--kind", choices=EXTRAS, default="text", help="what its encoder takes (default: text)")
    parser.add_argument(
        "--directory", type=Path, default=Path(), metavar="DIR", help="where transept-NAME goes (default: here)"
    )
    parser.set_defaults(run=new_plugin)


def new_plugin(arguments: argparse.Namespace) -> int:
    """``transept plugins new``. Raises PluginError when the name is taken or the files cannot be written."""
    target: Path = arguments.directory / f"transept-{arguments.name}"
    _check_architecture(arguments.name)
    written = write_plugin(arguments.name, target, arguments.kind)
    print(printable("\n  ".join(["Wrote", *map(str, written)])))
    print(printable(f"Install and test it:\n  pip install -e '{target}[test]'\n  pytest {target}"))
    print(printable(f"Then make it yours: {target / 'README.md'} says where to start."))
    return 0


def write_plugin(name: str, target: Path, kind: str) -> list[Path]:
    """Copy a skeleton to the new folder `target` under a name in the form of `NAME`. kind: one of EXTRAS.

    Returns the files. Raises PluginError when `target` exists or cannot be written.
    """
    files = {
        target / _renamed(str(source.relative_to(folder)), name): _renamed(source.read_text(encoding="utf-8"), name)
        for folder in (SKELETON / "shared", SKELETON / kind)
        for source in sorted(folder.rglob("*"))
        if source.is_file() and source.suffix != ".pyc"
    }
    project = target / "pyproject.toml"
    files[project] = files[project].replace('"transept>=', f'"transept{EXTRAS[kind]}>=')
    try:
        target.mkdir(parents=True)
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except FileExistsError:
        raise PluginError(
            f'"{target}" exists already, and nothing is overwritten. Choose another name or --directory.'
        ) from None
    except OSError as error:
        raise PluginError(f'cannot write "{error.filename}": {error.strerror}') from None
    return sorted(files)


def _renamed(text: str, name: str) -> str:
    forms = {"_skeleton": "_" + name.replace("-", "_"), "Skeleton": _class_prefix(name), "skeleton": name}
    return re.sub("_?[Ss]keleton", lambda match: forms[match[0]], text)


def _class_prefix(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("-"))


def _name(text: str) -> str:
    if NAME.fullmatch(text):
        return text
    nearest = re.sub("[^a-z0-9]+", "-", text.lower()).strip("-")
    hint = f'; try "{nearest}"' if NAME.fullmatch(nearest) else ""
    raise argparse.ArgumentTypeError(
        f'"{text}" cannot name a distribution and a module: lower-case letters and digits, a letter first, '
        f"words joined by single hyphens{hint}"
    )


def _check_architecture(name: str) -> None:
    """Raise PluginError when the new plugin would be the second one to run its architecture: its test would fail."""
    architecture = f"{_class_prefix(name)}ForConditionalGeneration"
    for report, _ in discover_quietly().claims.get(architecture, ()):
        raise PluginError(
            f'"{name}" would run {architecture}, as {report.name} from {report.distribution} {report.version} does. '
            "Choose another name; the architectures that your plugin runs can be edited later."
        )
