"""What folders, patterns, manifests and URIs give a batch."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from transept import ParameterError
from transept.cluster.files import open_uri
from transept.cluster.inputs import Input, Missing, find_inputs

SUFFIXES = {".wav", ".mp3"}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("a.wav", "b.MP3", "notes.txt", "deep/c.wav", "deep/er/d.wav", ".hidden/e.wav", "deep/.f.wav"):
        (tmp_path / "talks" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "talks" / name).touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def found(*arguments: str) -> list[str]:
    rows, missing = find_inputs(arguments, SUFFIXES)
    assert not missing
    return [row.file for row in rows]


def test_a_folder_gives_what_is_below_it_but_for_hidden_files(tree: Path) -> None:
    names = ["a.wav", "b.MP3", "deep/c.wav", "deep/er/d.wav"]
    assert found("talks") == [f"talks/{name}" for name in names]
    assert found(f"file://{tree}/talks") == [f"file://{tree}/talks/{name}" for name in names]


def test_patterns(tree: Path) -> None:
    assert found("talks/*.wav") == ["talks/a.wav"]
    assert found("talks/**/*.wav") == ["talks/a.wav", "talks/deep/c.wav", "talks/deep/er/d.wav"]
    for pattern in ("talks/*.wav", "talks/**/*.wav", "talks/*/c.w*v"):
        assert found(f"file://{tree}/{pattern}") == [f"file://{tree}/{file}" for file in found(pattern)]


def test_files_are_taken_whatever_they_are_called_and_each_once(tree: Path) -> None:
    rows, missing = find_inputs(["talks/notes.txt", "talks/a.wav", "talks"], SUFFIXES)
    assert [row.file for row in rows][:2] == ["talks/notes.txt", "talks/a.wav"]
    assert len({row.file for row in rows}) == len(rows) == 5
    assert rows[0] == Input("talks/notes.txt", str(tree / "talks/notes.txt"))
    assert not missing


def test_what_gives_nothing_is_told(tree: Path) -> None:
    (tree / "empty").mkdir()
    arguments = ["nowhere.wav", "*.ogg", "empty", f"file://{tree}/nowhere", f"file://{tree}/*.ogg", "nosuch://a/b"]
    rows, missing = find_inputs(arguments, SUFFIXES)
    assert rows == []
    assert [each.argument for each in missing] == arguments
    assert all(isinstance(each, Missing) and each.reason for each in missing)


def test_manifests(tree: Path) -> None:
    lines = ['{"file": "talks/a.wav", "x": 1}', "", '{"text": "a document"}', '{"file": "c.wav"}']
    (tree / "talks/deep/list.jsonl").write_text("\n".join(lines))
    expected = [
        Input("talks/a.wav", str(tree / "talks/a.wav")),
        Input("talks/deep/list.jsonl:2", None, "a document"),
        Input("c.wav", str(tree / "talks/deep/c.wav")),  # from the manifest's folder, since there is none here
    ]
    assert find_inputs(["talks/deep/list.jsonl"], SUFFIXES) == (expected, [])
    table = pa.table({"file": ["talks/a.wav", None, "c.wav"], "text": [None, "a document", None], "x": [1, 2, 3]})
    pa.parquet.write_table(table, tree / "talks/deep/list.parquet")
    (by_parquet, _) = find_inputs(["talks/deep/list.parquet"], SUFFIXES)
    assert [row.text for row in by_parquet] == [row.text for row in expected]
    assert [row.path for row in by_parquet] == [row.path for row in expected]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[1]", "must be an object"),
        ("{", "line 1 of .* is not JSON"),
        ('{"path": "a.wav"}', "row 1 of .* must have a string as"),
        ('{"file": 7}', "row 1 of .* must have a string as"),
    ],
)
def test_what_is_no_manifest(tree: Path, content: str, words: str) -> None:
    (tree / "list.jsonl").write_text(content)
    with pytest.raises(ParameterError, match=words):
        find_inputs(["list.jsonl"], SUFFIXES)


def test_a_parquet_file_without_the_columns(tree: Path) -> None:
    pa.parquet.write_table(pa.table({"path": ["a.wav"]}), tree / "list.parquet")
    with pytest.raises(ParameterError, match='needs a column "file" or "text", and has path'):
        find_inputs(["list.parquet"], SUFFIXES)
    (tree / "no.parquet").write_text("no")
    with pytest.raises(ParameterError, match="cannot be read"):
        find_inputs(["no.parquet"], SUFFIXES)


def test_names_of_any_characters_are_found_and_opened_by_uri(tree: Path) -> None:
    names = ["My Meeting #2?.wav", "100%.wav", "naïve [a].wav", "plain.wav"]
    for name in names:
        (tree / "odd" / "in it").mkdir(parents=True, exist_ok=True)
        (tree / "odd" / "in it" / name).write_text(name)
    folder = f"file://{tree}/odd/in it"
    for argument in (folder, folder.replace(" ", "%20"), f"file://{tree}/odd", f"{folder}/*.wav"):
        rows, missing = find_inputs([argument], SUFFIXES)
        assert not missing
        assert {row.file.rpartition("/")[2] for row in rows} == set(names)
        for row in rows:
            assert row.path is not None
            assert open_uri(row.path).read().decode() == row.file.rpartition("/")[2]
    assert found(f"{folder}/plain.wav") == [f"{folder}/plain.wav"]
    assert open_uri(f"{folder}/naïve [a].wav").read().decode() == "naïve [a].wav"


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are bytes on Linux alone")
def test_names_that_are_not_utf8_stop_nothing(tree: Path) -> None:
    name = os.fsdecode(b"talks/caf\xe9.wav")
    (tree / name).touch()
    for arguments, count in ((["talks"], 4), (["talks/*.wav"], 1), ([name, "talks/a.wav"], 1)):
        rows, missing = find_inputs(arguments, SUFFIXES)
        assert len(rows) == count
        (told,) = missing
        assert "UTF-8" in told.reason
        told.argument.encode()


def test_folders_that_cannot_be_read_stop_nothing() -> None:
    with tempfile.TemporaryDirectory() as given:
        folder = Path(given)
        folder.chmod(0o755)
        (folder / "closed" / "deep").mkdir(parents=True)
        for name in ("a.wav", "open/b.wav", "closed/deep/c.wav"):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).touch()
        (folder / "closed").chmod(0)
        user = os.geteuid()
        if not user:
            os.seteuid(65534)  # since root may read all
        try:
            rows, missing = find_inputs([given, f"file://{given}/nowhere/*.wav", f"file://{given}/**/*.wav"], SUFFIXES)
        finally:
            os.seteuid(user)
            (folder / "closed").chmod(0o755)
    names = [f"{given}/a.wav", f"{given}/open/b.wav"]
    assert [row.file for row in rows] == [*names, *(f"file://{name}" for name in names)]
    closed = (f"{given}/closed", "Permission denied")
    assert [(each.argument, each.reason) for each in missing] == [
        closed,
        (f"file://{given}/nowhere/*.wav", "No such file or directory"),
        closed,
    ]
