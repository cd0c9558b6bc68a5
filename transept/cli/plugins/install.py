"""``transept plugins install X...``: pip in the environment that Transept runs in, then ``transept plugins check``."""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys

from transept.errors import PluginError


def add_parser(subcommands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``install``."""
    about = "install plugins with pip into the environment that transept runs in, then check all plugins"
    parser = subcommands.add_parser(
        "install",
        help=about,
        description=about.capitalize() + ".",
        epilog="Exit code: that of `transept plugins check`, or 1 if pip failed. "
        "Where there is no pip, uv does its work. To remove a plugin, pip uninstall its distribution.",
    )
    parser.add_argument(
        "what", nargs="+", metavar="X", help="whatever pip installs: a name, name==version, a folder, a wheel, a URL"
    )
    parser.set_defaults(run=install_plugins)


def install_plugins(arguments: argparse.Namespace) -> int:
    """``transept plugins install``. Raises PluginError when there is neither pip nor uv."""
    if subprocess.run(_installation(arguments.what), check=False).returncode != 0:
        return 1
    # In a process of its own: this one may hold older versions of what was just installed.
    return subprocess.run([sys.executable, "-P", "-m", "transept", "plugins", "check"], check=False).returncode


def _installation(what: list[str]) -> list[str]:
    """The command that installs where this interpreter looks for packages."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip", "install", *what]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--python", sys.executable, *what]
    raise PluginError(
        f"cannot install {', '.join(what)}: {sys.executable} has no pip, and there is no uv on PATH to do its work. "
        f"Add pip with `{sys.executable} -m ensurepip`, or install uv, and try again."
    )
