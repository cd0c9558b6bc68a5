"""``transept convert`` as a user runs it."""

from pathlib import Path

import pytest
from command_line import Command

from transept import Transcript

SUBTITLES = """1
00:00:01,000 --> 00:00:03,000
A: We run cooper netties.

2
00:00:04,000 --> 00:00:05,000
B: On 12 machines.
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "talk.srt"
    file.write_text(SUBTITLES)
    return file


@pytest.mark.parametrize("format", ["srt", "vtt", "ttml", "ass", "json"])
def test_standard_input_is_read_in_the_format_of_its_beginning(
    command: Command, file: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    other = file.with_suffix(f".{format}-file")
    command("convert", file, other, "-f", format)
    for given in ((), ("--input-format", format)):
        with other.open() as opened:
            monkeypatch.setattr("sys.stdin", opened)
            done = command("convert", "-", "-", "-f", "srt", *given)
        assert done.stderr == ""
        assert "00:00:01,000 --> 00:00:03,000\n" in done.stdout
        assert "We run cooper netties." in done.stdout


def test_standard_input_may_be_closed_or_no_transcript(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert "standard input is closed" in command("convert", "-", "-", "-f", "srt").stderr
    (tmp_path / "words.txt").write_text("only words")
    with (tmp_path / "words.txt").open() as opened:
        monkeypatch.setattr("sys.stdin", opened)
        done = command("convert", "-", "-", "-f", "vtt")
    assert done.returncode == 2
    message = "cannot read standard input: the text has no subtitles in the format srt; give its actual --input-format"
    assert message in done.stderr


def test_subtitles_become_another_file(command: Command, file: Path) -> None:
    other = file.with_suffix(".vtt")
    done = command("convert", file, other)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"wrote {other}\n")
    assert other.read_text() == (
        "WEBVTT\n\n00:01.000 --> 00:03.000\n<v A>We run cooper netties.\n\n"
        "00:04.000 --> 00:05.000\n<v B>On 12 machines.\n\n"
    )
    page = file.with_suffix(".html")
    assert command("convert", other, page).returncode == 0
    assert "<b>A:</b> We run cooper netties.</p>" in page.read_text()


def test_all_edits_at_once(command: Command, file: Path) -> None:
    glossary = file.with_name("terms.txt")
    glossary.write_text("cooper netties → Kubernetes\n")
    options = ["--shift", "-1.5", "--speaker-names", "A=Anna, B=Ben", "--glossary", glossary, "--redact", "numbers"]
    done = command("convert", file, file, *options)
    assert done.returncode == 0, done.stderr
    assert [(each.start, each.end, each.speaker, each.text) for each in Transcript.read(file)] == [
        (0.0, 1.5, "Anna", " We run Kubernetes."),
        (2.5, 3.5, "Ben", " On [number] machines."),
    ]


def test_subtitles_are_laid_out_anew(command: Command, file: Path) -> None:
    done = command("convert", file, "-", "-f", "lrc", "--max-words-per-line", "2", "--speaker-names", "A=C,B=D")
    assert (
        done.stdout == "[00:01.00]C: We run\n[00:01.53]C: cooper netties.\n[00:04.00]D: On 12\n[00:04.31]D: machines.\n"
    )


def test_subtitles_before_zero_are_counted(command: Command, file: Path) -> None:
    done = command("convert", file, "-", "-f", "lrc", "--shift", "-3.5")
    assert (done.stdout, done.stderr) == ("[00:00.50]B: On 12 machines.\n", "left out 1 subtitle before 0\n")
    done = command("convert", file, "-", "-f", "lrc", "--shift", "-1e6")
    assert (done.stdout, done.stderr) == ("", "left out 2 subtitles before 0\n")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["talk.srt", "talk"], 2, "talk has no suffix that names a format; give one with -f: txt, srt"),
        (["talk.srt", "-"], 2, "standard output has no suffix that names a format"),
        (["talk.srt", "a.txt", "-f", "sr"], 2, "there is no format \"sr\". Did you mean 'srt'"),
        (["talk.str", "a.txt"], 1, 'cannot read "talk.str": No such file or directory'),
        (["talk.wav", "a.txt"], 2, "transcripts are read from .json, .ssa, .xml"),
        (["talk.srt", "a.txt", "--speaker-names", "C=Anna"], 2, "no speaker 'C'. Known: A, B."),
        (["talk.srt", "a.txt", "--speaker-names", "A=Anna,Ben"], 2, "--speaker-names must be old and new names"),
        (
            ["talk.srt", "a.txt", "--speaker-names", "Anna,Ben,Carl"],
            2,
            "has 3 names, and the transcript has 2 speakers",
        ),
        (["talk.srt", "a.txt", "--glossary", "terms.csv"], 2, '--glossary: cannot read "terms.csv": No such file'),
        (["talk.srt", "a.txt", "--redact", "name"], 2, "has no kind 'name'. Did you mean 'names'"),
        (["talk.srt", "a.txt", "--redact", "names"], 2, "to find names needs a plugin"),
        (["talk.srt", "a.txt", "--shift", "soon"], 2, "--shift: must be a number"),
        (["talk.srt", "a.txt", "--shift", "1e308"], 2, "--shift must be at most 1e+09"),
        (
            ["talk.srt", "a.srt", "--max-chars-per-second", "1e-320"],
            2,
            "must be a number of at least 1 and at most 1000",
        ),
        (["bad.srt", "a.txt"], 1, 'transept: cannot read "bad.srt": line 2: '),
        (["talk.srt", "a.txt", "--shift", "-1e10"], 2, "--shift must be a number of at least -1e+09"),
        (["talk.srt", "talk.wav/a.txt"], 2, "cannot write talk.wav/a.txt: Not a directory"),
        (["talk.srt", "a.txt", "--redact", ","], 2, "--redact: ',' is empty; it must have an entry: KIND,KIND,..."),
        (["talk.srt", "a.txt", "--glossary", ""], 2, "--glossary: '' is empty; it must name a file or folder"),
        (["talk.srt", "a.txt", "--glossary", "talk.wav"], 2, 'glossary: "talk.wav" has no terms'),
        (
            ["talk.srt", "a.ttml", "--style", "bbc", "--highlight-words"],
            2,
            "needs a format that shows it; write one with",
        ),
        (["talk.srt", "a.txt", "--style", "bbc"], 2, "--style lays out subtitles; write some with"),
        (["", "a.txt"], 2, "IN: '' is empty; it must name a file or folder"),
        (["talk.srt", "-", "-f", "docx"], 2, "docx is not text"),
    ],
)
def test_mistakes_are_one_message(
    command: Command, file: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, message: str
) -> None:
    monkeypatch.chdir(file.parent)
    file.with_name("talk.wav").touch()
    file.with_name("bad.srt").write_text("1\n00:00:xx --> 00:00:02,000\nHello\n")
    done = command("convert", *arguments)
    assert message in done.stderr
    assert done.returncode == code
    assert not file.with_name("a.txt").exists()
