"""Files that appear whole or not at all, and the manifest."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from transept.cli.manifest import Manifest, ManifestError
from transept.cli.recordings import Recording
from transept.cli.result_files import remove_unfinished, result_files, write_whole
from transept.errors import ParameterError


def listed(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_there_only_once_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "talk.srt"

    def write(place: Path) -> None:
        assert place.parent == path.parent
        assert place.suffix == ".srt"
        assert not path.exists()
        place.write_text("whole")

    write_whole(path, write)
    assert path.read_text() == "whole"
    assert listed(path.parent) == ["talk.srt"]


@pytest.mark.parametrize("error", [OSError("full"), KeyboardInterrupt()])
def test_what_breaks_off_leaves_what_was_there(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "talk.srt"
    path.write_text("before")

    def write(place: Path) -> None:
        place.write_text("hal")
        raise error

    with pytest.raises(type(error)):
        write_whole(path, write)
    assert path.read_text() == "before"
    assert listed(tmp_path) == ["talk.srt"]


def test_links_pipes_and_long_names_are_written_to(tmp_path: Path) -> None:
    (tmp_path / "link.txt").symlink_to("target.txt")
    write_whole(tmp_path / "link.txt", lambda place: place.write_text("text"))
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "target.txt").read_text() == "text"
    for target in ("other.srt", "blob"):
        (tmp_path / f"{target}.json").symlink_to(target)
        write_whole(tmp_path / f"{target}.json", lambda place: place.write_text(place.suffix))
        assert (tmp_path / target).read_text() == ".json"
    long = tmp_path / ("ü" * 125 + ".txt")  # as long as a name may be: 254 bytes
    write_whole(long, lambda place: place.write_text("text"))
    assert long.read_text() == "text"
    os.mkfifo(tmp_path / "pipe.txt")
    reading = os.open(tmp_path / "pipe.txt", os.O_RDONLY | os.O_NONBLOCK)
    write_whole(tmp_path / "pipe.txt", lambda place: place.write_text("text"))
    assert os.read(reading, 10) == b"text"
    os.close(reading)


def test_what_killed_processes_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    names = [f".talk.{ended.pid}.part.srt", f".talk.{os.getpid()}.part.srt", f"talk.{ended.pid}.part.srt"]
    names += [".talk.srt", f".talk.{ended.pid}.part.mp3", ".talk.part.srt", f".{'9' * 30}.{'9' * 30}.part.txt"]
    for name in names:
        (tmp_path / name).touch()
    remove_unfinished(tmp_path)
    assert listed(tmp_path) == sorted({*names} - {names[0], names[-1]})
    remove_unfinished(tmp_path / "nowhere")


def test_a_folder_that_may_not_be_listed_is_left_as_it_is() -> None:
    with tempfile.TemporaryDirectory() as given:
        Path(given).chmod(0o733)
        user = os.geteuid()
        if not user:
            os.seteuid(65534)  # since root may list all
        try:
            with pytest.raises(PermissionError):
                listed(Path(given))
            remove_unfinished(Path(given))
        finally:
            os.seteuid(user)
            Path(given).chmod(0o755)


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_manifest_goes_on_where_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    with Manifest(str(path)) as manifest:
        assert manifest.finished == set()
        manifest.add("a\n.mp3", "done", seconds=1.23456, audio_seconds=2.0, outputs=[tmp_path / "a.srt"])
        manifest.add("b\udcff.mp3", "failed", error="no audio")
        manifest.add("c.mp3", "skipped")
        manifest.add("d.mp3", "done")
        manifest.add("d.mp3", "failed", error="gone")
    whole = path.read_bytes()
    with Manifest(str(path)) as manifest:
        assert manifest.finished == {"a\n.mp3", "c.mp3"}
    assert path.read_bytes() == whole
    assert lines(path)[0] == {
        "file": "a\n.mp3",
        "status": "done",
        "error": None,
        "seconds": 1.235,
        "audio_seconds": 2.0,
        "outputs": [str(tmp_path / "a.srt")],
        "warnings": [],
        "reason": None,
    }
    for length in range(1, len(whole)):  # whatever a killed process leaves of its last line
        path.write_bytes(whole[:length])
        with Manifest(str(path)) as manifest:
            manifest.add("e.mp3", "done")
        assert [line["file"] for line in lines(path)][-1] == "e.mp3"
        assert path.read_bytes().startswith(whole[: whole.rfind(b"\n", 0, length) + 1])


@pytest.mark.parametrize("content", ["important\n", "important", '{"name": "x"}\n', "[1]\n", '{"file": 1', "\n"])
def test_what_is_no_manifest_stays_as_it_is(tmp_path: Path, content: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(content)
    if content == '{"file": 1':  # may be the begin of a line
        Manifest(str(path)).__exit__(None, None, None)
        return
    with pytest.raises(ParameterError, match="not from a manifest; name another"):
        Manifest(str(path))
    assert path.read_text() == content


def test_a_manifest_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="cannot be written: No such file or directory"):
        Manifest(str(tmp_path / "nowhere" / "x"))
    if Path("/dev/full").exists():
        with Manifest("/dev/full") as manifest, pytest.raises(ManifestError, match="No space left on device"):
            manifest.add("a.mp3", "done")


def test_other_names_are_advised_where_they_tell_recordings_apart() -> None:
    for files, advised in (
        (("talks/a.mp3", "other/a.mp3"), True),
        (("one/talks/a.mp3", "two/talks/a.mp3"), False),
        (("one/talks/a.mp3", "two/talks/a.wav"), True),
    ):
        recordings = [Recording(file) for file in files]
        with pytest.raises(ParameterError, match="run the command for each, with its own -o") as refused:
            result_files(recordings, ["srt"], folder=Path("out"), template=None, model="base")
        assert ("{parent}/{name}" in str(refused.value)) is advised


def test_a_name_without_a_suffix_is_kept_whole() -> None:
    recordings = [Recording("talks/Vol. 2"), Recording("talks/Vol. 3.mp3"), Recording("talks/talk.v1")]
    files = result_files(recordings, ["srt"], folder=Path("out"), template=None, model="base")
    assert files == [[Path("out/Vol. 2.srt")], [Path("out/Vol. 3.srt")], [Path("out/talk.v1.srt")]]
    files = result_files(recordings, ["srt"], folder=Path("out"), template="{stem}-{ext}", model="base")
    assert files == [[Path("out/Vol. 2-.srt")], [Path("out/Vol. 3-mp3.srt")], [Path("out/talk.v1-.srt")]]
    alike = [Recording("Vol. 2"), Recording("Vol. 2.wav")]
    files = result_files(alike, ["srt"], folder=Path("out"), template=None, model="base")
    assert files == [[Path("out/Vol. 2.srt")], [Path("out/Vol. 2.wav.srt")]]
