"""The environments of test_discovery.py, each made once a run."""

from __future__ import annotations

import pytest
from plugin_environment import EVERY_PLUGIN, Environment, make_environment


@pytest.fixture(scope="session")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Every plugin of tests/third_party is installed: the good, the broken and the rivals."""
    return make_environment(tmp_path_factory.mktemp("crowded"), EVERY_PLUGIN)


@pytest.fixture(scope="session")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The good plugin alone is installed, beside the built-in ones."""
    return make_environment(tmp_path_factory.mktemp("healthy"), ("good",))
