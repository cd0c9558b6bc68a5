"""Ray on this machine, for the tests of `transept.cluster`."""

from collections.abc import Iterator

import pytest

from transept.cluster.runtime import ClusterSize, cluster


@pytest.fixture(scope="module")
def local_ray() -> Iterator[ClusterSize]:
    """Ray in processes of its own, with this process as its driver."""
    with cluster("local", num_cpus=2) as size:
        yield size
