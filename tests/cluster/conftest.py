"""Ray on this machine, for the tests of `transept.cluster`."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import PATIENCE
from serve_clients import SHORTEST

from transept import Transcriber
from transept.cluster.runtime import ClusterSize, cluster

# Before Ray is imported: how long its processes wait for each other at their start.
for setting in ("raylet_start_wait_time_s", "worker_register_timeout_seconds"):
    os.environ.setdefault(f"RAY_{setting}", str(int(PATIENCE)))


@pytest.fixture(scope="module")
def local_ray() -> Iterator[ClusterSize]:
    """Ray in processes of its own, with this process as its driver."""
    with cluster("local", num_cpus=2) as size:
        yield size


@pytest.fixture(scope="module")
def short(speech_dir: Path) -> list[Path]:
    return sorted((speech_dir / "prompts-en").glob("*.flac"), key=lambda path: path.stat().st_size)[:SHORTEST]


@pytest.fixture(scope="module")
def texts(tiny_en_dir: Path, short: list[Path]) -> list[str]:
    return [each.text for each in Transcriber(tiny_en_dir).transcribe_many(short)]  # type: ignore[union-attr]
