"""Checkpoints, and Ray on this machine, for the tests of `transept.cluster`."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from text.small_checkpoints import save_bart, save_t5

from transept.cluster.runtime import ClusterSize, cluster


@pytest.fixture(scope="session")
def bart_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("bart")
    save_bart(directory)
    return directory


@pytest.fixture(scope="session")
def t5_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("t5")
    save_t5(directory)
    return directory


@pytest.fixture(scope="module")
def local_ray() -> Iterator[ClusterSize]:
    """Ray in processes of its own, with this process as its driver."""
    with cluster("local", num_cpus=2) as size:
        yield size
