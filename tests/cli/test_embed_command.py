"""``transept embed``: lines become vectors, those that the library gives."""

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import Command

from transept import TextEmbedding, TextGenerator

LINES = ["The rain falls.", "It is late."]
SMALL = ("--device", "cpu", "--threads", "1")


@pytest.fixture(scope="module")
def expected(t5_dir: Path) -> list[TextEmbedding]:
    with TextGenerator(t5_dir, kv_cache_bytes=20_000_000, device="cpu") as generator:
        return generator.encode(LINES, normalize=True)


def test_lines_are_printed(command: Command, t5_dir: Path, tmp_path: Path, expected: list[TextEmbedding]) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(["", *LINES]), encoding="utf-8")
    done = command("embed", lines, "--model", t5_dir, "--normalize", *SMALL)
    assert done.returncode == 1
    assert f"transept: {lines}:1: the document is empty\n" in done.stderr
    assert "3 lines, " in done.stderr
    assert ", 1 failed" in done.stderr
    bad, *good = map(json.loads, done.stdout.splitlines())
    assert bad["error"] == "PromptError: the document is empty"
    assert [each["line"] for each in good] == [2, 3]
    for ours, theirs in zip(good, expected, strict=True):
        assert ours["token_ids"] == theirs.token_ids
        assert ours["embedding"] == pytest.approx(theirs.embedding.tolist(), abs=1e-5)


def test_an_array_is_written(command: Command, t5_dir: Path, tmp_path: Path, expected: list[TextEmbedding]) -> None:
    output = tmp_path / "new" / "vectors.npy"
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join([LINES[0], "", LINES[1]]), encoding="utf-8")
    done = command("embed", lines, "--model", t5_dir, "--normalize", "--output", output, *SMALL)
    assert done.returncode == 1
    assert done.stdout == ""
    array = np.load(output)
    assert array.dtype == np.float32
    assert np.isnan(array[1]).all()
    np.testing.assert_allclose(array[::2], np.stack([each.embedding for each in expected]), atol=1e-5)
    assert [each.name for each in output.parent.iterdir()] == ["vectors.npy"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--output", "a.txt"), 2, "--output writes a .npy file, not a.txt"),
        (("--output", "a.npy", "--pooling", "none"), 2, "--pooling none has a vector for each token"),
        (("--pooling", "median"), 2, "median"),
        (("--output", "/dev/null/a.npy"), 1, "cannot write"),
    ],
)
def test_what_cannot_be_done_is_told_at_once(
    command: Command, tmp_path: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    done = command("embed", tmp_path / "gone", "--model", "none", *arguments)
    assert done.returncode == code
    assert message in done.stderr
