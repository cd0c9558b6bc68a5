"""What the tests of the command line share."""

import shutil
from functools import partial

import pytest
from command_line import Command, in_process
from filelock import FileLock
from fresh_environment import EXAMPLES, FreshEnvironment, make_environment


@pytest.fixture
def command(capfdbinary: pytest.CaptureFixture[bytes]) -> Command:
    """Runs ``transept ...`` in this process."""
    return partial(in_process, capfdbinary)


@pytest.fixture(scope="session")
def examples(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> FreshEnvironment:
    """Every plugin of examples/, installed into one environment, which the processes of a test run share."""
    folder = tmp_path_factory.getbasetemp()
    folder = (folder if worker_id == "master" else folder.parent) / "examples"
    with FileLock(f"{folder}.lock"):
        if not (folder / "installed").exists():
            environment = make_environment(folder / "venv")
            sources = shutil.copytree(EXAMPLES, folder / "sources")  # building writes beside the sources
            environment.install(*sorted(sources.glob("transept-*")))
            (folder / "installed").touch()
    return FreshEnvironment(folder / "venv")
