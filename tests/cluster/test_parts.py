"""The output of a batch: parts that are whole, what they hold already, and who may write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from transept.cluster.columns import SPEECH_COLUMNS
from transept.cluster.parts import FORMATS, OutputError, OutputFolder

RECORD = {"task": "transcribe", "model": "m", "options": {}}
SEGMENT = {"id": 0, "seek": 0, "start": 0.0, "end": 1.5, "text": " é", "tokens": [1, 2], "temperature": 0.0}
SEGMENT |= {"avg_logprob": -0.5, "compression_ratio": 1.0, "no_speech_prob": 0.25}


def table(*rows: tuple[str, str | None]) -> pa.Table:
    values: list[dict[str, Any]] = [
        {"file": file, "text": None if error else "é", "segments": [] if error else [SEGMENT], "error": error}
        for file, error in rows
    ]
    return pa.Table.from_pylist(values, pa.schema({"file": pa.string(), **SPEECH_COLUMNS}))


@pytest.fixture(params=FORMATS)
def format(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_what_is_written_is_there_for_the_next(tmp_path: Path, format: Any) -> None:
    for place in (str(tmp_path / "out"), f"file://{tmp_path}/by-uri"):
        with OutputFolder(place, format, RECORD) as folder:
            assert folder.done == {}
            folder.write(table(("a.wav", None), ("b.wav", "bad")))
            assert folder.done == {"a.wav": None, "b.wav": "bad"}
        with OutputFolder(place, format, RECORD) as folder:
            assert folder.done == {"a.wav": None, "b.wav": "bad"}
            folder.write(table(("c.wav", None)))
            assert [row["file"] for row in folder.rows()] == ["a.wav", "b.wav", "c.wav"]


def test_parts_are_plain_files_of_their_format(tmp_path: Path, format: Any) -> None:
    with OutputFolder(str(tmp_path), format, RECORD) as folder:
        folder.write(table(("a.wav", None), ("b.wav", "bad")))
    (part,) = tmp_path.glob(f"part-*.{format}")
    if format == "jsonl":
        rows = [json.loads(line) for line in part.read_text(encoding="utf-8").splitlines()]
        assert rows[0]["segments"] == [SEGMENT]
    else:
        rows = pa.parquet.read_table(tmp_path).to_pylist()  # a folder as a whole: it passes over the record
        assert {name: rows[0]["segments"][0][name] for name in SEGMENT} == SEGMENT
    assert [(row["file"], row["text"], row["error"]) for row in rows] == [("a.wav", "é", None), ("b.wav", None, "bad")]


def test_a_part_that_was_not_finished_is_none(tmp_path: Path, format: Any) -> None:
    with OutputFolder(str(tmp_path), format, RECORD) as folder:
        folder.write(table(("a.wav", None)))
    (part,) = tmp_path.glob("part-*")
    unfinished = tmp_path / f".unfinished-part-x.{format}"
    unfinished.write_bytes(part.read_bytes()[:20])  # what a process leaves that is killed while it writes
    with OutputFolder(str(tmp_path), format, RECORD) as folder:
        assert folder.done == {"a.wav": None}
        assert not unfinished.exists()


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: Any) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with OutputFolder(str(tmp_path), format, RECORD) as folder:
        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(OutputError, match="No space left"):
            folder.write(table(("a.wav", None)))
        assert folder.done == {}
    assert [path.name for path in tmp_path.iterdir()] == ["_transept.json"]


def test_failed_rows_can_be_done_again(tmp_path: Path, format: Any) -> None:
    with OutputFolder(str(tmp_path), format, RECORD) as folder:
        folder.write(table(("a.wav", None), ("b.wav", "bad")))
        folder.write(table(("c.wav", "bad")))
        folder.forget_failed()
        assert folder.done == {"a.wav": None}
        folder.write(table(("b.wav", None)))
    with OutputFolder(str(tmp_path), format, RECORD) as folder:
        assert folder.done == {"a.wav": None, "b.wav": None}
        assert sorted(row["file"] for row in folder.rows()) == ["a.wav", "b.wav"]


def test_a_folder_is_of_one_command_and_one_process(tmp_path: Path) -> None:
    with OutputFolder(str(tmp_path), "jsonl", RECORD), pytest.raises(OutputError, match="another process"):
        OutputFolder(str(tmp_path), "jsonl", RECORD)
    with OutputFolder(str(tmp_path), "jsonl", RECORD) as folder:
        folder.write(table(("a.wav", None)))
    with pytest.raises(OutputError, match="has results with model='m', but this command has 'n'"):
        OutputFolder(str(tmp_path), "jsonl", {**RECORD, "model": "n"})
    with pytest.raises(OutputError, match="has results with language=None, but this command has 'fr'"):
        OutputFolder(str(tmp_path), "jsonl", {**RECORD, "options": {"language": "fr"}})
    with pytest.raises(OutputError, match="format='jsonl'"):
        OutputFolder(str(tmp_path), "parquet", RECORD)


def test_a_folder_without_rows_binds_nobody(tmp_path: Path, format: Any) -> None:
    """Such as one of a command whose model was misspelled."""
    OutputFolder(str(tmp_path), "jsonl", {**RECORD, "model": "mm", "options": {"language": "xx"}}).close()
    with OutputFolder(str(tmp_path), format, RECORD) as folder:
        folder.write(table(("a.wav", None)))
    with OutputFolder(str(tmp_path), format, RECORD) as folder:
        assert folder.done == {"a.wav": None}


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (str(tmp_path / "file"), "nosuch://a/b"):
        with pytest.raises(OutputError, match="cannot write to the folder"):
            OutputFolder(place, "jsonl", RECORD)
