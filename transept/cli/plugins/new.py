"""``transept plugins new NAME``: write a working plugin distribution, for its author to change.

The folder ``skeleton`` beside this file has a distribution of each kind, ``transept-skeleton``: the files in the kind's
folder and those in ``shared``. A new plugin is a copy of them under another name.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import keyword
import re
import sys
from pathlib import Path

from transept.cli.plugins.reports import discover_quietly
from transept.cli.terminal import escape
from transept.errors import PluginError

SKELETON = Path(__file__).parent / "skeleton"
EXTRAS = {"text": "", "speech": "", "image": "[image]"}  # kind of encoder input -> extra of Transept
SUFFIX = "ForConditionalGeneration"  # of the model's class
NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")  # normalized (PEP 503), and an identifier once "-" is "_"


def add_parser(subcommands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``new``."""
    about = "write a new plugin, transept-NAME: a small working model with its test, for you to change"
    parser = subcommands.add_parser("new", help=about, description=about[0].upper() + about[1:] + ".")
    parser.add_argument(
        "name", type=_name, metavar="NAME", help='name of the model family, such as "blenderbot" or "blenderbot-small"'
    )
    parser.add_argument(
        "--class-name",
        type=_class_name,
        metavar="NAME",
        help="the model's class (default for mine: MineForConditionalGeneration)",
    )
    parser.add_argument("--kind", choices=EXTRAS, default="text", help="input of its encoder (default: text)")
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="folder for it (default: the current one)",
    )
    parser.set_defaults(run=new_plugin)


def new_plugin(arguments: argparse.Namespace) -> int:
    """Run ``transept plugins new``. Raises PluginError if the name is taken or the files cannot be written."""
    target: Path = arguments.directory / f"transept-{arguments.name}"
    class_name = arguments.class_name or f"{_class_prefix(arguments.name)}{SUFFIX}"
    _check_architecture(class_name)
    written = write_plugin(arguments.name, target, arguments.kind, class_name)
    print(escape("\n  ".join(["Wrote", *map(str, written)])))
    print(escape(f"Install and test it:\n  pip install -e '{target}[test]'\n  pytest {target}"))
    print(escape(f"Then edit it: {target / 'README.md'} says where to start."))
    return 0


def write_plugin(name: str, target: Path, kind: str, class_name: str) -> list[Path]:
    """Copy a skeleton to the new folder `target`, and return its files. name: in the form of `NAME`. kind: of EXTRAS.

    Raises PluginError if `target` exists or cannot be written, and for a class name that the files already use.
    """
    sources = {
        source.relative_to(folder): source.read_text(encoding="utf-8")
        for folder in (SKELETON / "shared", SKELETON / kind)
        for source in sorted(folder.rglob("*"))
        if source.is_file() and source.suffix != ".pyc"
    }
    for path, text in sources.items():
        if re.search(rf"\b{class_name}\b", text):
            raise PluginError(
                f"{class_name} is already a name in the new plugin's {_renamed(str(path), name, class_name)}; "
                f"choose another --class-name, such as My{class_name}"
            )
    files = {
        target / _renamed(str(path), name, class_name): _renamed(text, name, class_name)
        for path, text in sources.items()
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


def _renamed(text: str, name: str, class_name: str) -> str:
    forms = {
        "_skeleton": "_" + name.replace("-", "_"),
        "skeleton": name,
        f"Skeleton{SUFFIX}": class_name,
        "Skeleton": class_name.removesuffix(SUFFIX) or class_name,
    }
    return re.sub(f"_?skeleton|Skeleton({SUFFIX})?", lambda match: forms[match[0]], text)


def _class_prefix(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("-"))


def _name(text: str) -> str:
    if NAME.fullmatch(text):
        if kind := _kind_of_name(text.replace("-", "_")):
            raise argparse.ArgumentTypeError(f'"{text}" is {kind}; choose another name, such as "{text}-model"')
        return text
    nearest = re.sub("[^a-z0-9]+", "-", text.lower()).strip("-")
    hint = f'; try "{nearest}"' if NAME.fullmatch(nearest) else ""
    raise argparse.ArgumentTypeError(
        f'"{text}" cannot name a distribution and a module: lower-case letters and digits, a letter first, '
        f"words joined by single hyphens{hint}"
    )


def _kind_of_name(name: str) -> str | None:
    """Return the kind of a name that Python or a package already uses; None for a free name."""
    if keyword.iskeyword(name):
        return "a keyword of Python"
    needed = [re.match(r"[\w-]+", each) for each in importlib.metadata.requires("transept") or ()]
    packages = {each[0].replace("-", "_").lower() for each in needed if each}
    return "a module's name" if name in {*sys.stdlib_module_names, *packages, "transept"} else None


def _class_name(text: str) -> str:
    if text.isidentifier() and not keyword.iskeyword(text):
        return text
    raise argparse.ArgumentTypeError(f'"{text}" cannot name a class; write it as "My{SUFFIX}"')


def _check_architecture(architecture: str) -> None:
    """Raise PluginError if an installed plugin runs the architecture, since the new plugin's test would fail."""
    for report, _ in discover_quietly().claims.get(architecture, ()):
        raise PluginError(
            f"the plugin would run {architecture}, as {report.name} from {report.distribution} {report.version} does. "
            "Choose another name or --class-name; the architectures that your plugin runs can be edited later."
        )
