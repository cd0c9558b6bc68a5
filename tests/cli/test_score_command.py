"""``transept score``: pairs of files or JSON lines become scores, those that the library gives."""

import json
from pathlib import Path

import pytest
from command_line import Command

from transept import TextGenerator

DOCUMENTS = ["The rain falls.", "It is late."]
TARGETS = ["yes", "It is early."]
SMALL = ("--device", "cpu", "--threads", "1")


@pytest.fixture(scope="module")
def expected(t5_dir: Path) -> list[float]:
    with TextGenerator(t5_dir, kv_cache_bytes=20_000_000, device="cpu") as generator:
        return [score.logprob for score in generator.score(DOCUMENTS, TARGETS)]


def files(folder: Path, documents: list[str], targets: list[str]) -> tuple[Path, Path]:
    paths = folder / "documents.txt", folder / "targets.txt"
    for path, lines in zip(paths, (documents, targets), strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return paths


def test_lines_are_scored(command: Command, t5_dir: Path, tmp_path: Path, expected: list[float]) -> None:
    done = command("score", *files(tmp_path, DOCUMENTS, TARGETS), "--model", t5_dir, *SMALL)
    assert done.returncode == 0, done.stderr
    assert list(map(float, done.stdout.split())) == pytest.approx(expected, abs=1e-3)
    assert "2 pairs, " in done.stderr
    assert ", perplexity " in done.stderr


def test_objects_are_scored_and_printed(command: Command, t5_dir: Path, tmp_path: Path, expected: list[float]) -> None:
    pairs = tmp_path / "pairs.jsonl"
    lines = [{"document": "", "target": "a"}] + [
        {"document": document, "target": target} for document, target in zip(DOCUMENTS, TARGETS, strict=True)
    ]
    pairs.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    done = command("score", pairs, "--model", t5_dir, "--json", *SMALL)
    assert done.returncode == 1
    assert f"transept: {pairs}:1: the document is empty\n" in done.stderr
    assert "3 pairs, " in done.stderr
    assert ", 1 failed" in done.stderr
    bad, *good = map(json.loads, done.stdout.splitlines())
    assert bad["error"] == "PromptError: the document is empty"
    assert [each["logprob"] for each in good] == pytest.approx(expected, abs=1e-3)
    assert [len(each["logprobs"]) for each in good] == [len(each["token_ids"]) for each in good]


def test_what_cannot_be_paired_is_told(command: Command, t5_dir: Path, tmp_path: Path) -> None:
    documents, targets = files(tmp_path, DOCUMENTS, TARGETS[:1])
    done = command("score", documents, targets, "--model", t5_dir)
    assert done.returncode == 1
    assert "has 2 lines and" in done.stderr
    assert "has 1; line N of one belongs to line N of the other" in done.stderr
    done = command("score", documents, "--model", t5_dir)
    assert f'{documents}:1 is not a JSON object with "document" and "target"; or give a second file' in done.stderr
    assert "no such file" in command("score", tmp_path / "gone", "--model", t5_dir).stderr.lower()
    done = command("score", "-", "-", "--model", t5_dir)
    assert done.returncode == 2
    assert "standard input holds the documents or the targets, not both" in done.stderr
