"""``transept batch`` from end to end: real processes of Ray, real speech, and a process that is killed on its way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE
from random_trocr import save_trocr
from rendered_text import LINES, encoded_line

from transept import TextGenerator, Transcriber, VisionReader
from transept.cli import main
from transept.cluster.batch import BatchJob, run_batch
from transept.cluster.inputs import find_inputs
from transept.cluster.parts import OutputError
from transept.cluster.runtime import ClusterError, ClusterSize
from transept.errors import CheckpointError, ParameterError


def batch(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "transept", "batch", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


def rows_in(folder: Path) -> list[dict[str, Any]]:
    """The rows of all parts of JSON lines."""
    parts = sorted(folder.glob("part-*.jsonl"))
    return [json.loads(line) for part in parts for line in part.read_text(encoding="utf-8").splitlines()]


def assert_equal_to_rounding(given: Any, expected: Any) -> None:
    """What is computed beside other recordings differs in the last digits; nothing else may differ."""
    assert type(given) is type(expected)
    if isinstance(expected, dict):
        assert list(given) == list(expected)
        for name in expected:
            assert_equal_to_rounding(given[name], expected[name])
    elif isinstance(expected, list):
        assert len(given) == len(expected)
        for each, other in zip(given, expected, strict=True):
            assert_equal_to_rounding(each, other)
    elif isinstance(expected, float):
        assert given == pytest.approx(expected, rel=1e-4, abs=1e-5)
    else:
        assert given == expected


@pytest.fixture(scope="module")
def librivox(speech_dir: Path) -> Path:
    return speech_dir / "librivox"


def test_files_of_all_kinds_of_inputs_to_rows(tiny_en_dir: Path, librivox: Path, tmp_path: Path) -> None:
    files = sorted(librivox.glob("*.flac"))
    (tmp_path / "list.jsonl").write_text(json.dumps({"file": str(files[2])}) + "\n")
    (tmp_path / "broken.wav").write_bytes(b"RIFF")
    inputs = [f"file://{files[0]}", librivox / "*-08[89]0.flac", tmp_path / "list.jsonl", tmp_path / "broken.wav"]
    options = ["--model", tiny_en_dir, "--output", tmp_path / "out", "--replicas", 2, "--word-timestamps"]
    done = batch(*inputs, "/nowhere.wav", *options)
    assert done.returncode == 1
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert lines[0] == "transept: /nowhere.wav: there is no such file"
    assert lines[1].startswith(f"transept: {tmp_path}/broken.wav: audio file")
    assert lines[-2] == f"4 rows: 3 done, 1 failed ({tmp_path}/broken.wav), 1 argument without any file"
    assert "by 2 replicas of 1 thread;" in lines[-1]
    assert len(lines) == 4, done.stderr  # nothing of Ray's own

    rows = {row["file"]: row for row in rows_in(tmp_path / "out")}
    named = {f"file://{files[0]}": files[0], str(files[1]): files[1], str(files[2]): files[2]}
    transcripts = Transcriber(tiny_en_dir, num_threads=1).transcribe_many(named.values(), word_timestamps=True)
    for name, transcript in zip(named, transcripts, strict=True):
        expected = transcript.to_dict()  # type: ignore[union-attr]
        assert list(rows[name]) == ["file", "text", "segments", "language", "duration", "warnings", "reason", "error"]
        for field in ("text", "language", "duration"):
            assert rows[name][field] == expected[field]
        assert_equal_to_rounding(rows[name]["segments"], expected["segments"])
        assert rows[name]["error"] is None
    assert "cannot be decoded" in rows[f"{tmp_path}/broken.wav"]["error"]
    assert len(rows) == len(rows_in(tmp_path / "out")) == 4

    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    again = batch(*inputs, *options)
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr == f"4 rows: 0 done, 4 already in the output, 1 failed ({tmp_path}/broken.wav)\n"
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


@pytest.mark.slow
@pytest.mark.parametrize("task", ["summarize", "translate"])
def test_documents(local_ray: ClusterSize, bart_dir: Path, t5_dir: Path, tmp_path: Path, task: Any) -> None:
    (tmp_path / "texts").mkdir()
    documents = {"a.txt": "The cat sat on the mat.", "b.md": "Another one, of other words.", "c.txt": ""}
    for name, document in documents.items():
        (tmp_path / "texts" / name).write_text(document)
    (tmp_path / "list.jsonl").write_text(json.dumps({"text": documents["a.txt"]}))
    model = bart_dir if task == "summarize" else t5_dir
    options = {"max_tokens": 12} | ({"source": "en", "target": "de"} if task == "translate" else {})
    rows, _ = find_inputs([str(tmp_path / "texts"), str(tmp_path / "list.jsonl")], (".txt", ".md"))
    job = BatchJob(task, str(model), options, replicas=1, threads=1)
    report = run_batch(rows, job, str(tmp_path / "out"))
    assert (report.num_done, len(report.failed)) == (3, 1)
    expected = getattr(TextGenerator(model), task)([documents["a.txt"], documents["b.md"]], **options)
    results = {Path(row["file"]).name: row for row in rows_in(tmp_path / "out")}
    assert results["a.txt"]["text"] == results["list.jsonl:1"]["text"] == expected[0].text
    assert results["b.md"]["text"] == expected[1].text
    assert "empty" in results["c.txt"]["error"]
    assert list(results["a.txt"]) == ["file", "text", "error"]


def test_replicas_are_as_urgent_as_the_command(local_ray: ClusterSize) -> None:
    import ray

    niceness = ray.get(ray.remote(lambda: os.getpriority(os.PRIO_PROCESS, 0)).remote())
    assert niceness == os.getpriority(os.PRIO_PROCESS, 0)


@pytest.mark.slow
def test_images(tmp_path: Path) -> None:
    save_trocr(tmp_path / "trocr")
    (tmp_path / "scans").mkdir()
    files = [tmp_path / "scans" / f"{number}.png" for number in range(3)]
    for file, line in zip(files, LINES, strict=False):
        file.write_bytes(encoded_line(line))
    (tmp_path / "scans" / "notes.txt").write_text("no image")
    files[1].write_bytes(b"no image")
    options = ("--task", "read", "--model", str(tmp_path / "trocr"), "--output", str(tmp_path / "out"))
    done = batch(str(tmp_path / "scans"), *options, "--max-tokens", "8", "--num-beams", "1", "--image-task", "read")
    assert done.returncode == 1, done.stderr
    expected = VisionReader(tmp_path / "trocr").read([str(files[0]), str(files[2])], max_tokens=8, num_beams=1)
    rows = {row["file"]: row for row in rows_in(tmp_path / "out")}
    assert [*rows] == [str(file) for file in files]
    assert [rows[str(files[index])]["text"] for index in (0, 2)] == [each.text for each in expected]
    assert "not a readable image" in rows[str(files[1])]["error"]
    assert all(list(row) == ["file", "text", "error"] for row in rows.values())


RUN = """
import os, signal, sys
from transept.cluster.batch import BatchJob, run_batch
from transept.cluster.inputs import find_inputs

rows, _ = find_inputs([sys.argv[1]], {".flac"})
job = BatchJob("transcribe", sys.argv[2], replicas=1, threads=1)
die = (lambda row: os.kill(os.getpid(), signal.SIGKILL)) if sys.argv[4:] else None
print(run_batch(rows, job, sys.argv[3], part_seconds=0, on_result=die).num_done)
"""


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_where_it_was(tiny_en_dir: Path, speech_dir: Path, tmp_path: Path) -> None:
    """Killed once the first part is there: what was written stays, and each file is in the output once."""
    (tmp_path / "in").mkdir()
    for path in sorted((speech_dir / "prompts-en").glob("*.flac"), key=lambda path: path.stat().st_size)[:20]:
        (tmp_path / "in" / path.name).symlink_to(path)
    command = [sys.executable, "-c", RUN, str(tmp_path / "in"), str(tiny_en_dir), str(tmp_path)]
    first = subprocess.run([*command, "die"], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert first.returncode == -signal.SIGKILL, first.stderr
    written = {part: part.read_bytes() for part in tmp_path.glob("part-*")}
    num_written = len(rows_in(tmp_path))
    files = sorted(str(path) for path in (tmp_path / "in").iterdir())
    assert 0 < num_written < len(files)

    second = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert second.returncode == 0, second.stderr
    assert int(second.stdout) == len(files) - num_written
    assert all(part.read_bytes() == content for part, content in written.items())
    assert Counter(row["file"] for row in rows_in(tmp_path)) == Counter(files)
    assert not any(row["error"] for row in rows_in(tmp_path))


def test_failed_rows_are_done_again_when_asked(
    local_ray: ClusterSize, tiny_en_dir: Path, librivox: Path, tmp_path: Path
) -> None:
    recording = tmp_path / "a.flac"
    recording.write_bytes(b"not yet")
    rows, _ = find_inputs([str(recording)], ())
    job = BatchJob("transcribe", str(tiny_en_dir), replicas=1, threads=1)
    for _ in range(2):
        report = run_batch(rows, job, str(tmp_path / "out"))
        assert list(report.failed) == [str(recording)]
    assert report.num_skipped == 1
    recording.write_bytes((librivox / "austen-0880.flac").read_bytes())
    report = run_batch(rows, job, str(tmp_path / "out"), retry_failed=True)
    assert (report.num_done, report.failed) == (1, {})
    (row,) = rows_in(tmp_path / "out")
    assert row["error"] is None


def test_what_cannot_be_is_told(local_ray: ClusterSize, tiny_en_dir: Path, librivox: Path, tmp_path: Path) -> None:
    rows, _ = find_inputs([str(librivox)], (".flac",))
    with pytest.raises(CheckpointError, match='no checkpoint in "/nowhere"'):
        run_batch(rows, BatchJob("transcribe", "/nowhere", threads=1), str(tmp_path / "a"))
    with pytest.raises(CheckpointError, match='no checkpoint in "/nowhere"'):  # by a replica
        run_batch(rows, BatchJob("transcribe", "/nowhere", replicas=1, threads=1), str(tmp_path / "b"), address="auto")
    with pytest.raises(ClusterError, match="9999 threads, but the smallest node has 2 CPUs"):
        run_batch(rows, BatchJob("transcribe", str(tiny_en_dir), threads=9999), str(tmp_path / "c"))
    with pytest.raises(ParameterError, match="language"):
        BatchJob("transcribe", str(tiny_en_dir), {"languag": "en"})
    with pytest.raises(ParameterError, match="replicas must be"):
        BatchJob("transcribe", str(tiny_en_dir), replicas=0)
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot write"):
        run_batch(rows, BatchJob("transcribe", str(tiny_en_dir)), str(tmp_path / "file"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--task", "summarize", "--patience", "2"], "--patience applies to speech, not to --task summarize"),
        (["--min-tokens", "2"], "--min-new-tokens applies to text and images, not to"),
        (["--task", "translate", "--to-english"], "--task translate takes --target-language en"),
        (["--replica", "2"], "Did you mean --replicas"),
        (["--task", "read", "--patience", "2"], "--patience applies to speech, not to --task read"),
        (["--task", "read", "--source", "en"], "--source-language applies to text, not to --task read"),
        (["--image-task", "caption"], "--image-task applies to images, not to --task transcribe"),
        (["--task", "read", "--num-beams", "0"], "--num-beams must be an integer of at least 1"),
        (["--gpus", "-1"], "--gpus must be a number of at least 0, not -1.0"),
        (["--replicas", "0"], "--replicas must be an integer of at least 1"),
        (["--format", "json"], "Did you mean"),
        (["--languge", "en"], "Did you mean --language"),
    ],
)
def test_bad_usage(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["batch", "x.wav", "--model", "m", "--output", "/nowhere/out", *arguments])
    assert ended.value.code == 2
    assert words in capsys.readouterr().err
    assert not os.path.exists("/nowhere")


def test_no_cluster_at_an_address(tmp_path: Path, librivox: Path) -> None:
    done = batch(librivox, "--model", "m", "--output", tmp_path, "--ray", "127.0.0.1:1")
    assert done.returncode == 1
    assert 'cannot reach a Ray cluster at "127.0.0.1:1"' in done.stderr
