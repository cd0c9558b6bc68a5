"""``transept check-subtitles``, and the report of ``transcribe`` and ``align``."""

from pathlib import Path

from command_line import Command

GOOD = """1
00:00:01,000 --> 00:00:03,000
I went to see the house.

2
00:00:03,084 --> 00:00:05,000
It was not
there any more.
"""
BAD = """WEBVTT

00:01.000 --> 00:01.500
I went to see the
house, which was not where it had been for so long.
"""


def test_rules_that_files_break_are_printed(command: Command, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.srt", tmp_path / "bad.vtt"
    good.write_text(GOOD)
    bad.write_text(BAD)
    done = command("check-subtitles", good, "--style", "netflix")
    assert (done.returncode, done.stdout) == (0, f"{good}: 2 subtitles, no rule broken\n")
    done = command("check-subtitles", good, bad, "--style", "netflix")
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        f"{good}: 2 subtitles, no rule broken",
        f"{bad}: 1, 00:00:01.000: max_line_width: 51 characters in a line, at most 42",
        f"{bad}: 1, 00:00:01.000: max_chars_per_second: 138.0 characters a second, at most 20",
        f"{bad}: 1, 00:00:01.000: min_duration: 0.50 s long, at least 0.83",
        f'{bad}: 1, 00:00:01.000: split: a line ends between "the" and "house,"',
        f"{bad}: 1 subtitle, rules broken: max_line_width 1, max_chars_per_second 1, min_duration 1, split 1",
    ]
    done = command("check-subtitles", good, bad, "--style", "bbc", "--min-gap", "0.1", "--summary")
    assert done.stdout.splitlines()[0] == f"{good}: 2 subtitles, rules broken: min_gap 1"


def test_rules_by_themselves_and_errors(command: Command, tmp_path: Path) -> None:
    good = tmp_path / "good.srt"
    good.write_text(GOOD)
    assert command("check-subtitles", good, "--max-chars-per-second", "15").returncode == 0
    assert "max_chars_per_second 1" in command("check-subtitles", good, "--max-chars-per-second", "13").stdout
    done = command("check-subtitles", good)
    assert done.returncode == 2
    assert "give the rules to check: --style netflix" in done.stderr
    done = command("check-subtitles", tmp_path / "gone.srt", tmp_path / "talk.doc", good, "--style", "netflix")
    assert done.returncode == 1
    assert "cannot read" in done.stderr
    assert "has the suffix '.doc'" in done.stderr
    assert done.stdout == f"{good}: 2 subtitles, no rule broken\n"


def test_only_the_given_rules_are_checked_without_a_style(command: Command, tmp_path: Path) -> None:
    file, made = tmp_path / "talk.srt", tmp_path / "made.srt"
    file.write_text(
        "1\n00:00:01,000 --> 00:00:03,000\nI saw the\nhouse.\n\n2\n00:00:02,000 --> 00:00:04,000\nIt was gone.\n"
    )
    done = command("check-subtitles", file, "--max-line-width", "10")
    assert done.stdout.splitlines()[-1] == f"{file}: 2 subtitles, rules broken: max_line_width 1"
    done = command("convert", file, made, "--max-chars-per-second", "1")
    assert done.stderr.splitlines()[-1].endswith("that break each: max_chars_per_second 1")
    assert "broken: max_chars_per_second 1\n" in command("check-subtitles", made, "--max-chars-per-second", "1").stdout


def test_commands_say_which_rules_no_layout_keeps(command: Command, tmp_path: Path) -> None:
    fast, slow = tmp_path / "fast.srt", tmp_path / "slow.srt"
    fast.write_text(
        "1\n00:00:01,000 --> 00:00:02,000\nI went to see the house where my father lived.\n\n2\n"
        "00:00:02,000 --> 00:00:03,000\nIt was gone, and nobody could tell me why.\n"
    )
    slow.write_text(GOOD)
    for source, told in ((fast, "subtitles that break each: max_chars_per_second"), (slow, "")):
        made = tmp_path / "made.srt"
        done = command("convert", source, made, "--style", "netflix")
        assert done.returncode == 0
        assert told in done.stderr
        assert ("no layout keeps all rules" in done.stderr) == bool(told)
        assert command("check-subtitles", made, "--style", "netflix").returncode == bool(told)
