"""``transept plugins install``: real installations, by pip and by uv, into environments of their own."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from fresh_environment import PARENT, FreshEnvironment, make_environment

THIRD_PARTY = Path(__file__).parents[1] / "third_party"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with wheels of a plugin that works and of one that cannot be imported."""
    folder = tmp_path_factory.mktemp("wheels")
    sources = [str(shutil.copytree(THIRD_PARTY / name, folder / name)) for name in ("good", "noimport")]
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--wheel-dir", str(folder), *sources], check=True)
    return folder


@pytest.fixture
def environment(tmp_path: Path) -> FreshEnvironment:
    """Transept and pip."""
    return make_environment(tmp_path / "venv")


@pytest.fixture
def without_pip(tmp_path: Path) -> FreshEnvironment:
    """All that the tests' environment has but pip."""
    visible = tmp_path / "visible"
    visible.mkdir()
    for path in PARENT.iterdir():
        if not path.name.startswith("pip"):
            (visible / path.name).symlink_to(path)
    return make_environment(tmp_path / "venv", visible)


def test_a_name_is_installed_and_its_state_shown(environment: FreshEnvironment, wheels: Path) -> None:
    done = environment.transept("plugins", "install", "transept-good", PIP_NO_INDEX="1", PIP_FIND_LINKS=str(wheels))
    assert done.returncode == 0, done.stderr
    assert "Successfully installed transept-good-1.2" in done.stdout
    assert done.stdout.index("Successfully") < done.stdout.index("PLUGIN")  # pip's words, then the table
    row = next(line.split(maxsplit=4) for line in done.stdout.splitlines() if line.startswith("good "))
    assert row == ["good", "transept-good", "1.2", "ok", "GoodModel, GoodForConditionalGeneration, finds names"]


def test_a_plugin_that_fails_to_load_is_an_error(environment: FreshEnvironment, wheels: Path) -> None:
    (good,), (broken,) = wheels.glob("transept_good-*.whl"), wheels.glob("transept_noimport-*.whl")
    done = environment.transept("plugins", "install", good, broken.as_uri(), PIP_NO_INDEX="1")  # a path and a URL
    assert done.returncode == 1
    assert "ModuleNotFoundError: No module named 'a_module_that_nobody_has'" in done.stdout
    assert "GoodForConditionalGeneration" in done.stdout


def test_what_pip_cannot_find_is_an_error(environment: FreshEnvironment) -> None:
    done = environment.transept("plugins", "install", "transept-nonesuch", PIP_NO_INDEX="1")
    assert done.returncode == 1
    assert "No matching distribution found for transept-nonesuch" in done.stderr
    assert "PLUGIN" not in done.stdout


def test_uv_does_the_work_of_pip(without_pip: FreshEnvironment, wheels: Path) -> None:
    (good,) = wheels.glob("transept_good-*.whl")
    scripts = sysconfig.get_path("scripts")  # where the tests' environment has uv
    done = without_pip.transept("plugins", "install", good, PATH=scripts, UV_OFFLINE="1")
    assert done.returncode == 0, done.stderr
    assert "GoodForConditionalGeneration" in done.stdout


def test_without_pip_and_uv_the_error_says_what_to_do(without_pip: FreshEnvironment, tmp_path: Path) -> None:
    done = without_pip.transept("plugins", "install", "transept-good", PATH=str(tmp_path))
    assert done.returncode == 1
    assert "PluginError: cannot install transept-good" in done.stderr
    assert "-m ensurepip" in done.stderr
    assert "uv is not on PATH" in done.stderr
