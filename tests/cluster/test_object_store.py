"""``transept batch`` from a bucket to a bucket, by a real server of S3's API (moto's) on this machine."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.fs
import pyarrow.parquet
import pytest
from patience import PATIENCE, wait_until

from transept import Transcriber
from transept.cluster.inputs import find_inputs

pytest.importorskip("moto.server", reason="moto, which serves S3's API, comes with the extra dev")


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    """Variables by which programs find the server, as pyarrow documents them. It has one bucket, ``talks``."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = "127.0.0.1", bound.getsockname()[1]
    url = f"http://{address[0]}:{address[1]}"
    command = [sys.executable, "-m", "moto.server", "-H", address[0], "-p", str(address[1])]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:

        def made_bucket() -> bool:
            assert process.poll() is None
            try:
                urllib.request.urlopen(urllib.request.Request(f"{url}/talks", method="PUT")).close()
            except OSError:
                return False
            return True

        wait_until(made_bucket)
        keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_EC2_METADATA_DISABLED": "true"}
        yield {"AWS_ENDPOINT_URL": url, "AWS_DEFAULT_REGION": "us-east-1", **keys}
        process.terminate()


@pytest.fixture(scope="module")
def recordings(speech_dir: Path) -> list[Path]:
    return sorted((speech_dir / "librivox").glob("*.flac"))[:3]


@pytest.fixture
def bucket(environment: dict[str, str], recordings: list[Path], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The bucket's filesystem, with recordings in a folder ``in`` and one below it, and a file that is none."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    filesystem, _ = pyarrow.fs.FileSystem.from_uri("s3://talks/")
    names = ["a.flac", "b.flac", "below/c.flac"]
    contents = {name: path.read_bytes() for name, path in zip(names, recordings, strict=True)}
    for name, content in {**contents, "broken.flac": b"no audio", "notes.txt": b"no speech"}.items():
        with filesystem.open_output_stream(f"talks/in/{name}") as opened:
            opened.write(content)
    return filesystem


def test_inputs_of_a_bucket(bucket: Any) -> None:
    found, missing = find_inputs(["s3://talks/in", "s3://talks/none.flac", "s3://talks/in/*.txt"], {".flac"})
    names = ["a.flac", "b.flac", "below/c.flac", "broken.flac"]
    assert sorted(row.file for row in found) == sorted(f"s3://talks/in/{name}" for name in [*names, "notes.txt"])
    assert [each.argument for each in missing] == ["s3://talks/none.flac"]


@pytest.mark.slow
@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_a_batch_from_a_bucket_to_a_bucket(bucket: Any, recordings: list[Path], tiny_en_dir: Path, format: str) -> None:
    """A file that is no audio gets its error; the same command, run again, finds everything done."""
    output = f"talks/out-{format}"
    command = [sys.executable, "-m", "transept", "batch", "s3://talks/in", "--model", str(tiny_en_dir)]
    command += ["--output", f"s3://{output}", "--format", format]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=os.environ, check=False)
    assert done.returncode == 1, done.stderr
    assert "4 rows: 3 done, 1 failed (s3://talks/in/broken.flac)" in done.stderr
    rows: list[dict[str, Any]] = []
    for info in bucket.get_file_info(pyarrow.fs.FileSelector(output)):
        if info.base_name.startswith("part-"):
            with bucket.open_input_file(info.path) as opened:
                if format == "parquet":
                    rows += pyarrow.parquet.read_table(opened).to_pylist()
                else:
                    rows += [json.loads(line) for line in opened.read().splitlines()]
    expected = [each.text for each in Transcriber(tiny_en_dir).transcribe_many(recordings)]  # type: ignore[union-attr]
    by_file = {row["file"]: row for row in rows}
    names = ["a.flac", "b.flac", "below/c.flac"]
    assert [by_file[f"s3://talks/in/{name}"]["text"] for name in names] == expected
    assert "cannot be decoded" in by_file["s3://talks/in/broken.flac"]["error"]
    again = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=os.environ, check=False)
    assert "4 rows: 0 done, 4 already in the output, 1 failed" in again.stderr
