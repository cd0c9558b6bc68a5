"""``transept plugins install X...``: run pip in Transept's environment, then ``transept plugins check``."""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys

from transept.errors import PluginError


def add_parser(subcommands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare ``install``."""
    about = "install plugins with pip into transept's environment, then check all plugins"
    parser = subcommands.add_parser(
        "install",
        help=about,
        description=about.capitalize() + ".",
        epilog="Exit code: that of `transept plugins check`, or 1 if pip failed. "
        "Without pip, uv installs them. To remove a plugin, pip uninstall its distribution.",
    )
    parser.add_argument(
        "what", nargs="+", metavar="X", help="argument of pip install: a name, name==version, a folder, a wheel, a URL"
    )
    parser.set_defaults(run=install_plugins)


def install_plugins(arguments: argparse.Namespace) -> int:
    """Run ``transept plugins install``. Raises PluginError without pip and uv."""
    if subprocess.run(_installation(arguments.what), check=False).returncode != 0:
        return 1
    # In a new process: this one may have imported older versions of the installed packages.
    return subprocess.run([sys.executable, "-P", "-m", "transept", "plugins", "check"], check=False).returncode


def _installation(what: list[str]) -> list[str]:
    """Return the command that installs into this interpreter's environment."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip", "install", *what]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--python", sys.executable, *what]
    raise PluginError(
        f"cannot install {', '.join(what)}: {sys.executable} has no pip, and uv is not on PATH. "
        f"Add pip with `{sys.executable} -m ensurepip`, or install uv, and try again."
    )
