"""``transept env`` and ``transept --version``: what they say is so, and a broken installation is told, too."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fresh_environment import PARENT, FreshEnvironment, make_environment

import transept
from transept.cli import main
from transept.core.kernels.cpu import library

VERSION = importlib.metadata.version("transept")
BROKEN_TORCH = 'raise OSError("libtorch.so: cannot open\\nshared object file")\n'


def env(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["env", *arguments]) == 0
    return capsys.readouterr().out


@pytest.fixture
def broken(tmp_path: Path) -> FreshEnvironment:
    """Transept where torch cannot be imported and transformers is missing."""
    visible = tmp_path / "visible"
    (visible / "torch").mkdir(parents=True)
    (visible / "torch" / "__init__.py").write_text(BROKEN_TORCH, encoding="utf-8")
    packages = [Path(transept.__file__).parent, PARENT / "pluggy"]
    for path in (*packages, *PARENT.glob("transept-*.dist-info"), *PARENT.glob("pluggy-*.dist-info")):
        (visible / path.name).symlink_to(path)
    return make_environment(tmp_path / "venv", visible)


def test_the_version_is_one_line_with_what_it_runs_on(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(["--version"])
    assert done.value.code == 0
    gpus = [f"cuda:{index} {torch.cuda.get_device_name(index)}" for index in range(torch.cuda.device_count())]
    parts = [f"transept {VERSION}", f"torch {torch.__version__}", f"CPU level {library.level()}", *gpus]
    assert capsys.readouterr().out == ", ".join(parts) + "\n"


def test_the_level_is_the_one_that_kernels_use() -> None:
    command = [sys.executable, "-m", "transept", "--version"]
    environ = {**os.environ, "TRANSEPT_CPU_LEVEL": "portable"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    assert "CPU level portable" in done.stdout


def test_json_has_what_is_so_here(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSEPT_EXAMPLE", "\x1b[31m")
    told = json.loads(env(capsys, "--json"))
    assert {name: told[name] for name in ("transept", "torch", "python", "cpu_level", "threads")} == {
        "transept": VERSION,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cpu_level": library.level(),
        "threads": torch.get_num_threads(),
    }
    for name in ("transformers", "av"):
        assert told[name] == importlib.metadata.version(name)
    assert len(told["gpus"]) == torch.cuda.device_count()
    assert told["memory_gib"] > 0
    assert told["cache_folder"]
    assert told["variables"]["TRANSEPT_EXAMPLE"] == "\x1b[31m"
    assert {"bart", "t5", "whisper"} <= {plugin["name"] for plugin in told["plugins"]}
    assert told["conflicts"] == []


def test_cuda_without_a_gpu_has_its_size(tmp_path: Path) -> None:
    installed = tmp_path / "nvidia_example-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: nvidia-example\nVersion: 1\n", encoding="utf-8")
    (installed / "RECORD").write_text(f"nvidia/libexample.so,,{3 << 30}\n", encoding="utf-8")
    command = [sys.executable, "-m", "transept", "env", "--json"]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["unused_cuda_gib"] >= 3.0


def test_the_table_says_the_same_to_people(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSEPT_EXAMPLE", "\x1b[31m")
    told = env(capsys)
    table, plugins = told.split("\n\n")
    rows = dict(line.split("  ", 1) for line in table.splitlines())
    assert rows["torch"].strip() == torch.__version__
    assert rows["CPU level"].strip() == library.level()
    assert "TRANSEPT_EXAMPLE=\\u001b[31m" in rows["variables"]
    assert plugins.startswith("PLUGIN")
    assert "WhisperForConditionalGeneration" in plugins


def test_the_home_folder_is_not_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(Path.home() / "models"))
    assert json.loads(env(capsys, "--json"))["cache_folder"] == "~/models"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", "/srv/models")
    assert json.loads(env(capsys, "--json"))["cache_folder"] == "/srv/models"


def test_a_broken_installation_is_told(broken: FreshEnvironment) -> None:
    done = broken.transept("env", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["transept"], told["torch"], told["transformers"]) == (VERSION, "not installed", "not installed")
    reason = "unknown (OSError: libtorch.so: cannot open shared object file)"
    assert told["threads"] == told["cpu_level"] == told["gpus"] == reason
    assert told["cache_folder"] == "unknown (ModuleNotFoundError: No module named 'huggingface_hub')"
    assert reason in broken.transept("env").stdout
    line = broken.transept("--version")
    assert (line.returncode, line.stderr) == (0, "")
    assert line.stdout == f"transept {VERSION}, torch not installed, CPU level {reason}\n"
