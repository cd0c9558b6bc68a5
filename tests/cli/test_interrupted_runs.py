"""Many recordings, interrupted by Ctrl-C and killed at random moments, and resumed: each result once, none cut off."""

import random
import signal
from pathlib import Path

import pytest
from command_line import Command
from many_files import Runs, make_model, make_tree


@pytest.mark.parametrize(
    ("count", "interruptions"), [(60, 2), pytest.param(500, 16, marks=pytest.mark.slow)], ids=["60", "500"]
)
def test_every_result_exactly_once(
    command: Command, count: int, interruptions: int, tiny_en_dir: Path, tmp_path: Path
) -> None:
    rng = random.Random(count)
    talks, model = tmp_path / "talks", make_model(tmp_path / "model", tiny_en_dir)
    make_tree(talks, count)
    reference = Runs(talks, model, tmp_path / "at once")
    assert command(*reference.arguments).returncode == 0
    expected = reference.results()
    assert len(expected) == 2 * count
    assert len(set(expected.values())) > count // 2, "recordings differ, and so do their texts"

    runs = Runs(talks, model, tmp_path)
    before: dict[str, str] = {}
    num_interrupted = 0
    for number in range(interruptions):
        how = (signal.SIGKILL, signal.SIGINT)[number % 2]
        ended = runs.interrupted(how, after=rng.randrange(1, count // (2 * interruptions + 2)), rng=rng)
        assert "Traceback" not in ended.stderr
        there = runs.results()
        assert there.items() <= expected.items(), "some result is not whole"
        assert before.items() <= there.items(), "some result is gone"
        before = there
        if ended.returncode == 0:  # it was quicker
            continue
        num_interrupted += 1
        assert ended.returncode == (130 if how is signal.SIGINT else -signal.SIGKILL)
        if how is signal.SIGINT:
            assert f"interrupted: {count} recordings: " in ended.stderr
    assert num_interrupted >= interruptions // 2
    assert 0 < len(before) < len(expected)

    last = command(*runs.arguments)
    assert last.returncode == 0, last.stderr
    assert f"{count} recordings: " in last.stderr
    assert runs.results() == expected
    assert runs.hidden() == []
    told = runs.told()
    assert sorted(file for file, _ in told) == sorted(map(str, talks.rglob("*.wav"))), "a line for each, and one only"
    assert {status for _, status in told} <= {"done", "skipped"}
    num_whole = sum(name.removesuffix(".txt") + ".json" in before for name in before if name.endswith(".txt"))
    assert last.stderr.count(": wrote ") == count - num_whole, "only what was missing is done"
