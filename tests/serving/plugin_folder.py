"""Installs a plugin with pip in a folder, for tests that serve with it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

DIARIZER = '''
from transept.authoring import hookimpl


@hookimpl
def diarize(waveform, sample_rate, min_speakers, max_speakers):
    """Return as many speakers as the call asks for, or two, one after the other, for equal times."""
    number = max_speakers or 2
    part = len(waveform) / sample_rate / number
    return [(each * part, (each + 1) * part, f"speaker {each + 1}") for each in range(number)]
'''
PACKAGE = """[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "transept-{name}"
version = "1.0"

[project.entry-points."transept.plugins"]
{name} = "transept_{name}"

[tool.setuptools]
py-modules = ["transept_{name}"]
"""


def install(source: Path, site: Path) -> None:
    """Install a folder of sources. pip also writes into this folder."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", str(site), str(source)], check=True)


@contextmanager
def installed_module(name: str, code: str, folder: Path) -> Iterator[Path]:
    """Install a plugin of one module below a folder, on the path of this process. Yields the place for `environment`.

    name: of the plugin, whose module is ``transept_NAME``.
    """
    source, site = folder / "source", folder / "site"
    source.mkdir()
    (source / f"transept_{name}.py").write_text(code)
    (source / "pyproject.toml").write_text(PACKAGE.format(name=name))
    install(source, site)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(site)
        yield site


def environment(site: Path) -> dict[str, str]:
    """Return the environment variables of a process that finds the plugin."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))}
