"""``transept translate-subtitles`` on a small trained checkpoint."""

from pathlib import Path

import pytest
from command_line import Command

from transept import TextGenerator, Transcript

T5 = Path(__file__).parents[1] / "data" / "cmudict" / "t5-g2p"
WORDS = ("nave", "choir")
TO_PHONEMES = ("--model", T5, "--target-language", "phonemes")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Subtitles of one word each, with pauses between them."""
    file = tmp_path / "talk.srt"
    times = ("00:00:01,000 --> 00:00:02,500", "00:00:09,000 --> 00:00:10,000")
    file.write_text("".join(f"{time}\n{word}\n\n" for time, word in zip(times, WORDS, strict=True)))
    return file


def test_subtitles_get_the_translations_and_keep_their_times(
    command: Command, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = command("translate-subtitles", file, *TO_PHONEMES)
    assert done.returncode == 0, done.stderr
    other = file.with_name("talk.phonemes.srt")
    assert f"wrote {other}\n2 subtitles in " in done.stderr
    found = Transcript.read(other)
    assert [(each.start, each.end) for each in found] == [(1.0, 2.5), (9.0, 10.0)]
    with TextGenerator(T5) as generator:
        expected = [each.text for each in generator.translate(list(WORDS), target="phonemes")]
    assert [each.text.strip() for each in found] == expected
    printed = command("translate-subtitles", file, *TO_PHONEMES, "-o", "-", "-f", "txt", "--num-beams", "1")
    assert len(printed.stdout.splitlines()) == 2
    with file.open() as opened:
        monkeypatch.setattr("sys.stdin", opened)
        piped = command("translate-subtitles", "-", *TO_PHONEMES, "-f", "srt")
    assert piped.stdout == other.read_text()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["talk.srt", *TO_PHONEMES, "-o", "talk"], 2, "talk has no suffix that names a format; give one with -f"),
        (["talk.str", *TO_PHONEMES, "-o", "a.srt"], 1, 'cannot read "talk.str": No such file'),
        (["talk.srt", "--model", T5, "--target-language", "German"], 2, "German"),
        (["talk.srt", *TO_PHONEMES, "--max-line-count", "2"], 2, "--max-line-count needs the width"),
    ],
)
def test_mistakes_are_one_message(
    command: Command, file: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, message: str
) -> None:
    monkeypatch.chdir(file.parent)
    done = command("translate-subtitles", *arguments)
    assert message in done.stderr
    assert done.returncode == code
    assert [each.name for each in file.parent.iterdir()] == ["talk.srt"]
