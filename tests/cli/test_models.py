"""``transept models``, and models by their short names, with a hub on this machine that has the real tiny.en."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import Command
from hub_server import COMMIT, Hub

from transept import Transcriber
from transept.errors import CheckpointError

TINY_EN = "Systran/faster-whisper-tiny.en"
SENTENCE = "He might even have been made amiable himself."


@pytest.fixture(scope="module")
def hub(tiny_en_dir: Path):
    server = Hub({TINY_EN: {COMMIT: {file.name: file for file in tiny_en_dir.iterdir()}}})
    yield server
    server.close()


@pytest.fixture(scope="module")
def kept(hub: Hub, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of models with tiny.en in it, as the command downloads it."""
    folder = tmp_path_factory.mktemp("kept") / "models"
    command = [sys.executable, "-m", "transept", "models", "download", "tiny.en", "no-such", "--model-dir", str(folder)]
    environment = hub.environment(folder.parent)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert 'transept: no checkpoint "no-such": no such directory, and the hub has no such model' in done.stderr
    (path,) = map(Path, done.stdout.splitlines())
    assert path.is_relative_to(folder)
    assert {file.name for file in path.iterdir()} >= {"config.json", "model.bin", "tokenizer.json"}
    return folder


@pytest.fixture
def clip(speech_dir: Path) -> Path:
    return sorted((speech_dir / "librivox").glob("*.flac"))[-1]


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An empty cache, and a hub that nobody answers for."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")


def test_the_table_says_what_is_on_disk(command: Command, kept: Path, no_hub: None) -> None:
    done = command("models", "--model-dir", kept)
    assert done.returncode == 0, done.stderr
    rows = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line}
    assert rows["tiny.en"] == ["yes", "78", TINY_EN]
    assert rows["turbo"] == ["no", "1618", "mobiuslabsgmbh/faster-whisper-large-v3-turbo"]
    assert rows["large"][2] == rows["large-v3"][2] == "Systran/faster-whisper-large-v3"
    assert done.stdout.endswith(f"\nKept in {kept}\n")
    assert command("models", "list", "--model-dir", kept).stdout == done.stdout
    (kept / "base.en").mkdir()  # as somebody copies it there, broken off
    listed = {row["name"]: row for row in json.loads(command("models", "--json", "--model-dir", kept).stdout)}
    assert listed["tiny.en"]["on_disk"] == "yes"
    assert Path(listed["tiny.en"]["path"]).is_relative_to(kept)
    assert (listed["base.en"]["on_disk"], listed["base.en"]["path"]) == ("incomplete", str(kept / "base.en"))
    assert (listed["small"]["on_disk"], listed["small"]["path"]) == ("no", None)


def test_a_folder_that_is_not_there_is_told(command: Command, tmp_path: Path) -> None:
    for options in ([], ["--json"]):
        done = command("models", "--model-dir", tmp_path / "none", *options)
        assert done.returncode == 0
        assert done.stderr == f"transept: {tmp_path / 'none'} does not exist; the first download makes it\n"
        assert '"yes"' not in done.stdout
    (tmp_path / "file").touch()
    assert (
        command("models", "--model-dir", tmp_path / "file").stderr == f"transept: {tmp_path / 'file'} is not a folder\n"
    )
    assert command("models", "--model-dir", tmp_path).stderr == ""


def test_a_short_name_transcribes_offline(command: Command, kept: Path, clip: Path, no_hub: None) -> None:
    done = command("transcribe", clip, "--model", "tiny.en", "--model_dir", kept, "--offline")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{SENTENCE}\n"


def test_a_model_that_is_not_there_is_told_with_the_way_to_get_it(command: Command, clip: Path, no_hub: None) -> None:
    for name, options, reason in (("small", ["--offline"], "offline mode"), ("base", [], "the hub cannot be reached")):
        done = command("transcribe", clip, "--model", name, *options)
        assert done.returncode == 1
        assert reason in done.stderr
        assert f"`transept models download {name}` gets it, with access to the hub" in done.stderr
        assert "Traceback" not in done.stderr
    done = command("summarize", clip, "--model", "tinny.en", "--offline")
    assert "Did you mean 'tiny.en'?" in done.stderr


def test_the_library_knows_the_same_names(kept: Path, clip: Path, no_hub: None) -> None:
    transcriber = Transcriber("tiny.en", model_dir=kept, offline=True)
    assert transcriber.transcribe(clip).text == SENTENCE
    with pytest.raises(CheckpointError, match="no copy in the hub's cache, and offline mode"):
        Transcriber("tiny.en", offline=True)


def test_a_misspelt_subcommand_and_option(command: Command) -> None:
    done = command("models", "downlod", "tiny")
    assert done.returncode == 2
    assert "Did you mean 'download'?" in done.stderr
    done = command("transcribe", os.devnull, "--models-path", "x")
    assert "Here that is --model-dir" in done.stderr
