"""The example plugin of Marian."""

from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from installed_plugin import installed

MARIAN = Path(__file__).parents[1] / "examples" / "transept-marian"


def marian_plugin(tmp_path_factory: pytest.TempPathFactory) -> AbstractContextManager[None]:
    """Install the plugin for a context."""
    return installed(tmp_path_factory, MARIAN)
