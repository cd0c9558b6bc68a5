"""Installs examples/transept-voices with pip in a folder, for tests that put it on the path."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "examples" / "transept-voices"
needs_weights = pytest.mark.skipif(
    find_spec("resemblyzer") is None, reason="Resemblyzer, which has the weights, is not installed: see the Makefile"
)


def install_voices(folder: Path) -> Path:
    """Install the plugin below a folder, and return the place for sys.path."""
    source = shutil.copytree(SOURCE, folder / "source")  # building writes beside the sources
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", str(folder / "site"), str(source)], check=True)
    return folder / "site"
