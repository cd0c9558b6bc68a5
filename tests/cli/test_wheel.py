"""What is published: a source distribution that builds a wheel, and a wheel that runs where nothing is compiled."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from fresh_environment import make_environment

ROOT = Path(__file__).parents[2]
KERNELS = "transept/core/kernels/cpu"
SKELETON = "transept/cli/plugins/skeleton"
# Writes nothing but the file that the compiler is asked for.
NO_COMPILER = "import pathlib, sys; pathlib.Path(sys.argv[sys.argv.index('-o') + 1]).write_bytes(b'')"


def build_sdist(folder: Path) -> Path:
    """The source distribution of the checkout, without what lies in it but is no source."""
    project, made = folder / "project", folder / "sdist"
    project.mkdir()
    made.mkdir()
    unwanted = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(ROOT / "transept", project / "transept", ignore=unwanted)
    shutil.copytree(ROOT / "tests" / "cli", project / "tests" / "cli", ignore=unwanted)
    for file in ROOT.iterdir():
        if file.is_file() and not file.name.startswith("."):
            shutil.copy(file, project)
    hook = f"import build_backend; build_backend.build_sdist({str(made)!r})"
    subprocess.run([sys.executable, "-c", hook], cwd=project, check=True, capture_output=True)
    (sdist,) = made.iterdir()
    return sdist


def build_wheel(sdist: Path, folder: Path, **environ: str) -> Path:
    """A wheel, built from a source distribution alone, as an index's users build it."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--wheel-dir", str(folder), str(sdist)], env={**os.environ, **environ}, check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_sdist(tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel_without_code(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel whose kernels are empty files."""
    folder = tmp_path_factory.mktemp("wheel")
    (folder / "no_compiler.py").write_text(NO_COMPILER, encoding="utf-8")
    return build_wheel(sdist, folder, CXX=f"{sys.executable} {folder / 'no_compiler.py'}")


def test_the_source_distribution_has_all_that_builds_the_package(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "setup.py", "build_backend.py", "README.md", "LICENSE", "CHANGELOG.md"} <= names
    kernels = (ROOT / KERNELS).rglob("*")
    assert {file.relative_to(ROOT).as_posix() for file in kernels if file.suffix in (".cpp", ".h", ".py")} <= names
    assert not [name for name in names if name.endswith(".so") or name.startswith("tests")]


def test_a_wheel_has_the_libraries_and_no_sources_of_them(wheel_without_code: Path) -> None:
    names = set(zipfile.ZipFile(wheel_without_code).namelist())
    assert f"{KERNELS}/lib/kernels_portable.so" in names
    assert not [name for name in names if name.endswith((".cpp", ".h", ".o"))]
    assert not [name for name in names if name.split("/")[0] in ("tests", "benchmarks", "build_backend.py")]
    assert wheel_without_code.name.split("-")[2:4] == ["py3", "none"]  # for every Python of this platform


def test_a_wheel_has_every_file_of_the_package(wheel_without_code: Path) -> None:
    names = set(zipfile.ZipFile(wheel_without_code).namelist())
    package = [file for file in (ROOT / "transept").rglob("*") if "__pycache__" not in file.parts and file.is_file()]
    ours = {file.relative_to(ROOT).as_posix() for file in package if file.suffix not in (".cpp", ".h", ".so")}
    assert ours <= names
    assert f"{SKELETON}/shared/pyproject.toml" in names
    assert wheel_without_code.stat().st_size < 2_000_000  # weights are in distributions of their own


@pytest.mark.slow
def test_a_wheel_transcribes_where_it_is_installed(
    sdist: Path, tmp_path: Path, tiny_en_dir: Path, speech_dir: Path
) -> None:
    wheel = build_wheel(sdist, tmp_path)
    environment = make_environment(tmp_path / "venv")
    environment.install(wheel)
    where = environment.run("-c", "import transept; print(transept.__file__)").stdout
    assert where.startswith(str(environment.folder))
    recording = speech_dir / "librivox" / "austen-0870.flac"
    done = environment.transept("transcribe", recording, "--model", tiny_en_dir, "-f", "txt", "-o", tmp_path)
    assert done.returncode == 0, done.stderr
    spoken = json.loads((recording.parent / "transcripts.json").read_text(encoding="utf-8"))[0]["text"]
    heard = (tmp_path / "austen-0870.txt").read_text(encoding="utf-8").lower()
    assert re.sub(r"[^a-z ]", "", heard.replace("mr.", "mister")) == spoken
