"""Plugins that pip installs where this process, and so its workers, find them."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def installed(tmp_path_factory: pytest.TempPathFactory, *plugins: Path) -> Iterator[None]:
    """Install plugins for this context. plugins: folders of their sources."""
    site = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    for plugin in plugins:
        source = tmp_path_factory.mktemp("source") / plugin.name
        shutil.copytree(plugin, source)  # building writes beside the sources
        subprocess.run([*pip, "--target", str(site), str(source)], check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(site)
        yield
