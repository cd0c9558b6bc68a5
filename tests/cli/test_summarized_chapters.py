"""``transept summarize`` over transcripts: their texts, and their chapters."""

import json
from pathlib import Path

import pytest
from command_line import Command

from transept.cli.chapters import LONGEST_TITLE, title_of

BART = Path(__file__).parents[1] / "data" / "cmudict" / "bart-g2p"
OPTIONS = ("--model", BART, "--num-beams", "1")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A transcript, its subtitles, and the text of each chapter."""
    monkeypatch.chdir(tmp_path)
    segments = [
        {"start": 0, "end": 30, "text": " nave"},
        {"start": 3640, "end": 3670, "text": " choir", "speaker": "A"},
    ]
    Path("talk.json").write_text(json.dumps(segments))
    Path("talk.srt").write_text("00:00:00,000 --> 00:00:30,000\nnave\n")
    Path("nave.txt").write_text("nave")
    Path("choir.txt").write_text("A: choir")
    return tmp_path


def test_chapters_have_times_titles_and_summaries(command: Command, files: Path) -> None:
    texts = [
        json.loads(line)["text"]
        for line in command("summarize", "nave.txt", "choir.txt", *OPTIONS, "--json").stdout.splitlines()
    ]
    done = command("summarize", "talk.json", "--chapters", *OPTIONS)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"0:00 {texts[0]}\n\n1:00:40 {texts[1]}\n\n"
    marked = command("summarize", "talk.json", "--chapters", "--markdown", *OPTIONS)
    assert marked.stdout == f"# talk.json\n\n## 0:00 {texts[0]}\n\n## 1:00:40 {texts[1]}\n\n"
    whole = command("summarize", "talk.json", "--chapters", "--chapter-minutes", "90", "--json", *OPTIONS)
    [chapter] = json.loads(whole.stdout)["chapters"]
    assert (chapter["start"], chapter["end"]) == (0.0, 3670.0)


def test_standard_input_may_be_a_transcript(command: Command, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = command("summarize", *OPTIONS, "--chapters", "talk.json")
    with Path("talk.json").open() as opened:
        monkeypatch.setattr("sys.stdin", opened)
        piped = command("summarize", *OPTIONS, "--chapters", "-")
    assert piped.returncode == 0, piped.stderr
    assert piped.stdout == file.stdout


def test_subtitles_are_summarized_as_their_text(command: Command, files: Path) -> None:
    subtitles = command("summarize", "talk.srt", *OPTIONS)
    assert subtitles.stdout == command("summarize", "nave.txt", *OPTIONS).stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["talk.json", "--markdown"], 2, "--markdown and --chapter-minutes apply to chapters; add --chapters"),
        (["talk.json", "--chapters", "--stream"], 2, "--stream prints one text piece by piece"),
        (
            ["talk.json", "--chapters", "--chapter-minutes", "0"],
            2,
            "--chapter-minutes must be a number of at least 0.1",
        ),
        (["talk.json", "--chapter-minutes", "5"], 2, "--markdown and --chapter-minutes apply to chapters"),
        (["nave.txt", "--chapters"], 1, 'nave.txt: cannot read "nave.txt": transcripts are read from'),
    ],
)
def test_mistakes_are_one_message(command: Command, files: Path, arguments: list[str], code: int, message: str) -> None:
    done = command("summarize", *arguments, *OPTIONS)
    assert message in done.stderr
    assert done.returncode == code


def test_no_model_is_loaded_for_files_that_cannot_be_read(command: Command, files: Path) -> None:
    done = command("summarize", "gone.srt", "--chapters", "--model", "no-such-model")
    assert done.returncode == 1
    assert done.stderr == 'transept: gone.srt: cannot read "gone.srt": No such file or directory\n'


def test_a_title_is_the_first_sentence() -> None:
    assert title_of("The tower moves. It is tall.") == "The tower moves"
    assert title_of("Does it move? Yes.") == "Does it move?"
    assert title_of("no mark") == "no mark"
    long = title_of("word " * 40)
    assert len(long) <= LONGEST_TITLE
    assert long.endswith("word…")
