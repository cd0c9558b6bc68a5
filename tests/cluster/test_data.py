"""Transcribe, Summarize and Translate give each row what the library's own calls give, or its error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from random_trocr import save_trocr
from rendered_text import LINES, encoded_line

from transept import ParameterError, TextGenerator, Transcriber, VisionReader
from transept.cluster import Read, Summarize, Transcribe, Translate
from transept.cluster.runtime import ClusterSize

DOCUMENTS = ["The cat sat on the mat.", "", "A second document, of other words.", "x " * 5000]


@pytest.fixture(scope="module")
def files(speech_dir: Path) -> list[str]:
    return [str(path) for path in sorted((speech_dir / "librivox").glob("*.flac"))]


@pytest.fixture(scope="module")
def transcripts(tiny_en_dir: Path, files: list[str]) -> list[dict[str, Any]]:
    return [each.to_dict() for each in Transcriber(tiny_en_dir).transcribe_many(files)]


@pytest.fixture(scope="module")
def transcribe(tiny_en_dir: Path) -> Transcribe:
    return Transcribe(tiny_en_dir)


def test_rows_are_what_the_transcriber_gives(
    transcribe: Transcribe, files: list[str], transcripts: list[dict[str, Any]]
) -> None:
    values = np.array([files[0], "/nowhere.wav", f"file://{files[1]}", "file:///nowhere.wav", None, "nosuch://x/y"])
    batch = transcribe({"file": values, "id": np.arange(6)})
    assert list(batch) == ["file", "id", "text", "segments", "language", "duration", "warnings", "reason", "error"]
    assert list(batch["id"]) == list(range(6))
    for row, expected in ((0, transcripts[0]), (2, transcripts[1])):
        for name in ("text", "segments", "language", "duration"):
            assert batch[name][row] == expected[name]
        assert batch["error"][row] is None
    for row, words in ((1, "/nowhere.wav"), (3, "No such file"), (4, "not None"), (5, "nosuch")):
        assert words in batch["error"][row]
        assert batch["text"][row] is None
        assert batch["segments"][row] == []


def test_errors_of_rows_name_options_as_their_user_does(tiny_en_dir: Path, files: list[str]) -> None:
    given = {"file": np.array(files[:1])}
    transcribe = Transcribe(tiny_en_dir, audio_track=2)
    assert "leave audio_track out" in transcribe(given)["error"][0]
    transcribe.names = {"audio_track": "--audio-track"}
    assert "leave --audio-track out" in transcribe(given)["error"][0]


def test_bytes_of_files_are_recordings_too(
    tiny_en_dir: Path, files: list[str], transcripts: list[dict[str, Any]]
) -> None:
    batch = Transcribe(tiny_en_dir, column="bytes")({"bytes": [Path(files[0]).read_bytes(), b"no audio"]})
    assert batch["text"][0] == transcripts[0]["text"]
    assert "cannot be decoded" in batch["error"][1]


def test_tables_have_one_schema_whatever_they_hold(
    transcribe: Transcribe, files: list[str], transcripts: list[dict[str, Any]]
) -> None:
    good, bad = (transcribe(pa.table({"file": [file]})) for file in (files[0], "/nowhere.wav"))
    assert good.schema == bad.schema
    assert not any(pa.types.is_null(kind) for kind in good.schema.types)
    (segment,) = good["segments"][0].as_py()
    assert {name: value for name, value in segment.items() if value is not None} == transcripts[0]["segments"][0]


@pytest.mark.slow  # the example of docs/scaling.md is such a pipeline, too
@pytest.mark.parametrize("num_cpus", [1, 2])
def test_a_pipeline_of_ray_data(
    local_ray: ClusterSize, tiny_en_dir: Path, files: list[str], transcripts: list[dict[str, Any]], num_cpus: int
) -> None:
    import ray.data

    class TranscribeTellingThreads(Transcribe):  # here, so that it is sent to workers, which do not see this file
        def __call__(self, batch: Any) -> Any:
            result = super().__call__(batch)
            return {**result, "threads": np.full(len(result["file"]), torch.get_num_threads())}

    rows = (
        ray.data.from_items([{"file": file} for file in [*files, "/nowhere.wav"]])
        .map_batches(
            TranscribeTellingThreads,
            fn_constructor_kwargs={"model": str(tiny_en_dir)},
            compute=ray.data.ActorPoolStrategy(size=2 // num_cpus),
            batch_size=2,
            num_cpus=num_cpus,
        )
        .take_all()
    )
    by_file = {row["file"]: row for row in rows}
    assert len(rows) == len(by_file) == len(files) + 1
    for file, expected in zip(files, transcripts, strict=True):
        row = by_file[file]
        assert (row["text"], row["error"], row["duration"]) == (expected["text"], None, expected["duration"])
        assert [dict(segment) for segment in row["segments"]] == expected["segments"]
    assert "/nowhere.wav" in by_file["/nowhere.wav"]["error"]
    assert {row["threads"] for row in rows} == {num_cpus}


def test_bad_options_are_told_before_a_model_is_loaded() -> None:
    with pytest.raises(ParameterError, match=r"no option 'languag'\. Did you mean 'language'"):
        Transcribe("/nowhere", languag="en")
    with pytest.raises(ParameterError, match="beam_size"):
        Transcribe("/nowhere", beam_size=0)
    with pytest.raises(ParameterError, match="num_beams"):
        Summarize("/nowhere", num_beams=-1)
    with pytest.raises(ParameterError, match="target"):
        Summarize("/nowhere", target="de")
    with pytest.raises(ParameterError, match="quantization"):
        Translate("/nowhere", quantization="int3")


def test_a_batch_without_the_column(transcribe: Transcribe) -> None:
    with pytest.raises(ParameterError, match='no column "file"; it has files'):
        transcribe({"files": ["a.wav"]})


def test_summaries(bart_dir: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"max_tokens": 12, "num_beams": 2, "truncate": False}
    expected = TextGenerator(bart_dir).summarize([DOCUMENTS[0], DOCUMENTS[2]], **options)
    (tmp_path / "third.txt").write_text(DOCUMENTS[2])
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    summarize = Summarize(bart_dir, output_column="summary", **options)
    batch = summarize(
        {
            "text": [DOCUMENTS[0], "", None, None, None, DOCUMENTS[3]],
            "file": [None, None, str(tmp_path / "third.txt"), str(tmp_path / "latin.txt"), "/nowhere.txt", None],
        }
    )
    assert [batch["summary"][row] for row in (0, 2)] == [each.text for each in expected]
    assert [error is None for error in batch["error"]] == [True, False, True, False, False, False]
    for row, words in ((1, "empty"), (3, "UTF-8"), (4, "No such file"), (5, "tokens")):
        assert words in batch["error"][row]
        assert batch["summary"][row] is None


def test_translations_take_the_place_of_documents(t5_dir: Path) -> None:
    options: dict[str, Any] = {"source": "en", "target": "de", "max_tokens": 12}
    expected = TextGenerator(t5_dir).translate(DOCUMENTS[0], **options)
    batch = Translate(t5_dir, **options)(pa.table({"text": [DOCUMENTS[0]], "id": [7]}))
    assert batch.to_pylist() == [{"text": expected.text, "id": 7, "error": None}]


def test_images_are_what_the_reader_gives(tmp_path: Path) -> None:
    save_trocr(tmp_path / "trocr")
    files = [tmp_path / f"{number}.png" for number in range(3)]
    for file, line in zip(files, LINES, strict=False):
        file.write_bytes(encoded_line(line))
    options: dict[str, Any] = {"max_tokens": 8, "num_beams": 1}
    expected = [each.text for each in VisionReader(tmp_path / "trocr").read([str(file) for file in files], **options)]
    assert len({*expected}) > 1
    read = Read(tmp_path / "trocr", task="read", **options)
    values = [str(files[0]), "/nowhere.png", f"file://{files[1]}", None, "file:///nowhere.png", files[2].read_bytes()]
    batch = read({"file": values, "id": [*range(6)]})
    assert list(batch) == ["file", "id", "text", "error"]
    assert [*batch["text"]] == [expected[0], None, expected[1], None, None, expected[2]]
    assert [error is None for error in batch["error"]] == [True, False, True, False, False, True]
    for row, words in ((1, "/nowhere.png"), (3, "not None"), (4, "No such file")):
        assert words in batch["error"][row]
    good, bad = (read(pa.table({"file": [file]})) for file in values[:2])
    assert good.schema == bad.schema
    assert good["text"].to_pylist() == [expected[0]]
    with pytest.raises(ParameterError, match="there is no task 'titel'"):
        Read(tmp_path / "trocr", task="titel")
    with pytest.raises(ParameterError, match=r"Read has no option 'max_token'\. Did you mean 'max_tokens'"):
        Read("/nowhere", max_token=4)


def test_a_task_that_the_model_does_not_have(bart_dir: Path) -> None:
    with pytest.raises(ParameterError, match="do not translate"):
        Translate(bart_dir, source="en", target="de")


@pytest.mark.parametrize("missing", ["ray", "pyarrow"])
def test_without_the_extra_the_error_names_it(missing: str) -> None:
    without = f"import sys; sys.modules[{missing!r}] = None\n"
    code = without + "from transept.cluster import Transcribe"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f'needs {missing}; install them with: pip install "transept[ray]"' in done.stderr
    for arguments in (["batch", "x.wav", "--model", "m", "--output", "/nowhere/out"], ["serve", "m", "--ray"]):
        code = without + f"from transept.cli import main; sys.exit(main({arguments!r}))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("transept: MissingPackageError: ")
        assert 'pip install "transept[ray]"' in done.stderr
