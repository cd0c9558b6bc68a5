"""``transept watch``: which recordings are taken, and a run over a folder that fills, with a fake clock."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from command_line import Command
from many_files import OPTIONS, RATE, make_model

from transept.cli.run_summary import RunSummary
from transept.cli.watch import FolderWatch, last_line, of_one
from transept.speech.options import TranscriptionOptions


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, tiny_en_dir: Path) -> Path:
    return make_model(tmp_path_factory.mktemp("model"), tiny_en_dir)


def write(file: Path, seconds: float = 0.2) -> None:
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, int(RATE * seconds))
    soundfile.write(file, noise, RATE)


def watch(folder: Path, out: Path | None = None) -> FolderWatch:
    arguments = argparse.Namespace(
        folder=str(folder), recursive=True, output_format=("srt", "txt"), output_name=None, model="base", settle=5.0
    )
    return FolderWatch(arguments, out)


def names(watched: FolderWatch, now: float) -> list[str]:
    return [Path(task.recording.file).name for task in watched.ready(now)]


def test_a_recording_is_taken_once_its_size_stays(tmp_path: Path) -> None:
    watched = watch(tmp_path)
    assert names(watched, 0.0) == []
    talk = tmp_path / "talk.wav"
    talk.touch()
    (tmp_path / "talk.part").write_bytes(b"a")
    assert names(watched, 10.0) == []  # it is empty
    talk.write_bytes(b"a")
    assert names(watched, 20.0) == []
    assert names(watched, 24.9) == []
    talk.write_bytes(b"ab")  # it still grows
    assert names(watched, 25.0) == []
    assert names(watched, 29.9) == []
    [task] = watched.ready(30.0)
    assert task.paths == [tmp_path / "talk.srt", tmp_path / "talk.txt"]
    assert names(watched, 40.0) == []  # it was taken, and is not tried again
    talk.write_bytes(b"abc")
    assert names(watched, 50.0) == []
    assert names(watched, 55.0) == ["talk.wav"]


def test_the_file_of_added_voices_may_be_missing_at_first(tmp_path: Path) -> None:
    given = {"voices": tmp_path / "voices.json", "add_voices": True, "same_speakers": True, "language": "en"}
    checked = TranscriptionOptions(**of_one(given))
    assert checked.diarize
    assert not checked.add_voices
    assert checked.language == "en"


def test_results_that_are_newer_are_left(tmp_path: Path) -> None:
    for name, age in (("talk.wav", 50), ("talk.srt", 20), ("talk.txt", 20), ("walk.wav", 50), ("walk.srt", 20)):
        (tmp_path / name).write_bytes(b"a")
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    (tmp_path / "talk.txt").write_bytes(b"")  # of a recording without speech
    watched = watch(tmp_path)
    assert names(watched, 0.0) == []
    assert names(watched, 5.0) == ["walk.wav"]  # a result is missing
    os.utime(tmp_path / "talk.wav", (1e9, 1e9))
    again = watch(tmp_path)
    assert names(again, 0.0) == []
    assert names(again, 5.0) == ["talk.wav", "walk.wav"]  # a result is older


def test_a_folder_in_the_place_of_a_result_is_told_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("talk.wav", "talk.txt"):
        (tmp_path / name).write_bytes(b"a")
    (tmp_path / "talk.srt").mkdir()
    watched = watch(tmp_path)
    assert names(watched, 0.0) == []
    [task] = watched.ready(5.0)
    assert not RunSummary(None).can_write(task)
    assert "talk.srt: Is a directory" in capsys.readouterr().err


def test_folders_keep_their_tree_and_may_be_gone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "talks" / "monday").mkdir(parents=True)
    talk = tmp_path / "talks" / "monday" / "talk.wav"
    talk.write_bytes(b"a")
    watched = watch(tmp_path / "talks", tmp_path / "out")
    watched.ready(0.0)
    [task] = watched.ready(5.0)
    assert task.paths[0] == tmp_path / "out" / "monday" / "talk.srt"
    (tmp_path / "talks").rename(tmp_path / "gone")
    assert watched.ready(6.0) == watched.ready(7.0) == []
    assert capsys.readouterr().err.count("No such file or directory") == 1


def at_each_wait(monkeypatch: pytest.MonkeyPatch, *steps: Callable[[], object]) -> None:
    """Call the next function in place of each wait of the command, and interrupt it after the last one."""
    now, rest = [0.0], list(steps)

    def wait(seconds: float) -> None:
        now[0] += seconds
        if not rest:
            raise KeyboardInterrupt
        rest.pop(0)()

    monkeypatch.setattr("transept.cli.watch.sleep", wait)
    monkeypatch.setattr("transept.cli.watch.monotonic", lambda: now[0])


def test_a_folder_is_transcribed_as_it_fills(
    command: Command, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talks = tmp_path / "talks"
    talks.mkdir()

    def nothing() -> None:
        pass

    def add() -> None:
        write(talks / "one.wav")
        (talks / "bad.wav").write_bytes(b"RIFF, it says")

    at_each_wait(monkeypatch, add, nothing, nothing, lambda: write(talks / "two.wav"), nothing, nothing, nothing)
    arguments = ("watch", talks, "--model", model, *OPTIONS, "--settle", "2", "-f", "txt,json")
    done = command(*arguments)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in talks.iterdir()} == {
        *("one.wav", "one.txt", "one.json", "two.wav", "two.txt", "two.json", "bad.wav"),
    }
    assert f"watching {talks}; Ctrl+C ends\n" in done.stderr
    assert f"transept: {talks}/bad.wav: " in done.stderr
    assert done.stderr.endswith("ended: 2 recordings transcribed, 1 failed\n")

    at_each_wait(monkeypatch, nothing, nothing)
    again = command(*arguments)
    assert again.stderr.endswith("ended: 0 recordings transcribed, 1 failed\n")


def test_the_last_line_counts_recordings_that_an_interruption_loses() -> None:
    summary = RunSummary(None, num_done=2, failed=["bad.wav"])
    assert last_line(summary, 3) == "ended: 2 recordings transcribed, 1 failed"
    assert last_line(summary, 5).endswith("1 failed, 2 unfinished: the next run begins them again")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["talks"], "talks is not a folder"),
        ([".", "--settle", "-1"], "--settle must be a number of at least 0"),
        ([".", "-f", "str"], "Did you mean 'srt'"),
        ([".", "--redact", "names"], "to find names needs a plugin"),
        ([".", "--max-line-width", "20", "-f", "txt"], "--max-line-width lays out subtitles"),
    ],
)
def test_mistakes_are_told_at_once(
    command: Command, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = command("watch", *arguments, "--model", model)
    assert message in done.stderr
    assert done.returncode == 2
