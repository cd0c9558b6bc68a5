"""The example plugin of Marian, installed by pip where this process finds it."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MARIAN = Path(__file__).parents[1] / "examples" / "transept-marian"


@contextmanager
def marian_plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Install the plugin for this context."""
    source, site = tmp_path_factory.mktemp("source") / "marian", tmp_path_factory.mktemp("site")
    shutil.copytree(MARIAN, source)  # building writes beside the sources
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", str(site), str(source)], check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(site)
        yield
